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

// maxBody is the size of the largest request body, in bytes. It is enough for a
// hundred items with full descriptions.
const maxBody = 64 << 10

// readBody reads a body of at most limit bytes that is declared as JSON. A body that
// ends early is not malformed, because the connection may be bad: a client that was
// told to use a new key might pay twice, as an earlier request may have arrived.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if !isJSON(r.Header) {
		return nil, errUnsupportedMedia
	}
	tooLarge := fmt.Errorf("%w: at most %d KiB are taken here", errTooLarge, limit>>10)
	if r.ContentLength > limit {
		return nil, tooLarge // before 100 Continue
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

// isJSON reports whether the body is declared as JSON in UTF-8 without a content
// encoding. Two Content-Type lines are ambiguous, so they are rejected.
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

// readKey parses the Idempotency-Key header: one line with the raw key or a String of
// RFC 9651. Both forms name the same key.
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

// unquote parses a String of RFC 9651 section 3.3.3, in which a backslash escapes a
// quote or a backslash.
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
