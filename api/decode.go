package api

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"

	"example.com/orders-api/idempotency"
)

// maxBody is the size of the largest request body, in bytes. A hundred items
// with full descriptions fit in.
const maxBody = 64 << 10

// readBody reads a body that is declared as JSON, of at most limit bytes, as it
// came. One that ends early is not malformed: the client may have sent it whole,
// and be too slow or badly connected. Told to take a new key it could buy twice,
// because an earlier send under this one may have arrived.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if !isJSON(r.Header) {
		return nil, errUnsupportedMedia
	}
	tooLarge := fmt.Errorf("%w: at most %d KiB are taken here", errTooLarge, limit>>10)
	if r.ContentLength > limit {
		return nil, tooLarge // before the client is told to go on sending (100 Continue)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var overrun *http.MaxBytesError
	if errors.As(err, &overrun) {
		return nil, tooLarge
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, errBodyCut
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the body is not framed as HTTP should be", idempotency.ErrMalformed)
	}
	return body, nil
}

// isJSON says whether the body is declared as JSON in UTF-8 without a content
// encoding. Two lines of a header that has one value could be read either way.
func isJSON(header http.Header) bool {
	contentTypes := header.Values("Content-Type")
	if len(contentTypes) != 1 {
		return false
	}
	mediaType, params, err := mime.ParseMediaType(contentTypes[0])
	charset, given := params["charset"]
	encoding := strings.Join(header.Values("Content-Encoding"), ",")
	return err == nil && mediaType == "application/json" &&
		(!given || strings.EqualFold(charset, "utf-8")) &&
		(encoding == "" || strings.EqualFold(encoding, "identity"))
}

// readKey parses the Idempotency-Key header: one line, the raw key or a String
// of RFC 9651. Both forms name the same key.
func readKey(header http.Header) (idempotency.Key, error) {
	lines := header.Values("Idempotency-Key")
	switch {
	case len(lines) == 0:
		return "", errKeyMissing
	case len(lines) > 1:
		return "", idempotency.ErrInvalidKey
	}
	line := strings.Trim(lines[0], " \t")
	if line == "" {
		return "", errKeyMissing
	}
	if !strings.HasPrefix(line, `"`) {
		return idempotency.ParseKey(line)
	}
	key, err := unquote(line)
	if err != nil {
		return "", err
	}
	return idempotency.ParseKey(key)
}

// unquote reads a String of RFC 9651 section 3.3.3: quotes around it, and a
// backslash before each quote and backslash in it.
func unquote(s string) (string, error) {
	var out strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			if i != len(s)-1 {
				return "", idempotency.ErrInvalidKey // parameters or a second value
			}
			return out.String(), nil
		case '\\':
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", idempotency.ErrInvalidKey
			}
		}
		out.WriteByte(s[i])
	}
	return "", idempotency.ErrInvalidKey // no closing quote
}
