package api

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"example.com/orders-api/idempotency"
)

// maxBody is the largest body in bytes: a hundred items with full descriptions.
const maxBody = 64 << 10

// readBody reads a body of at most limit bytes. A body that ends early is not malformed:
// a client that then corrects the request with a new key might pay twice.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if err := checkMediaType(r.Header); err != nil {
		return nil, err
	}
	tooLarge := fmt.Errorf("%w: at most %d KiB are allowed here", errTooLarge, limit>>10)
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

// checkMediaType accepts one Content-Type of JSON in UTF-8 without a content encoding.
func checkMediaType(header http.Header) error {
	encoding := strings.Join(header.Values("Content-Encoding"), ",")
	if encoding != "" && !strings.EqualFold(encoding, "identity") {
		return errUnsupportedCoding
	}
	contentTypes := header.Values("Content-Type")
	if len(contentTypes) != 1 {
		return errUnsupportedMedia
	}
	mediaType, params, err := mime.ParseMediaType(contentTypes[0])
	charset, given := params["charset"]
	if err != nil || mediaType != "application/json" || given && !strings.EqualFold(charset, "utf-8") {
		return errUnsupportedMedia
	}
	return nil
}

// readKey parses the one header line: the raw key, or a String of RFC 9651.
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

// maxWait is the longest wait. Proxies close a silent connection after a minute, and a
// run may follow.
const maxWait = 30 * time.Second

// preferences are those of RFC 7240 that are supported; others are ignored. No response
// is cached, so there is no Vary.
type preferences struct {
	respondAsync bool
	wait         time.Duration // 0 if there is none; at most maxWait
}

// readPreferences reads all lines. The first preference of a name counts.
func readPreferences(header http.Header) preferences {
	var p preferences
	seen := map[string]bool{}
	for _, line := range header.Values("Prefer") {
		for line != "" {
			var name, value string
			name, value, line = nextPreference(line)
			if name == "" || seen[name] {
				continue
			}
			seen[name] = true
			switch name {
			case "respond-async":
				p.respondAsync = value == ""
			case "wait":
				p.wait = parseWait(value)
			}
		}
	}
	return p
}

func (p preferences) write(header http.Header) {
	var applied []string
	if p.respondAsync {
		applied = append(applied, "respond-async")
	}
	if p.wait > 0 {
		applied = append(applied, "wait="+strconv.Itoa(int(p.wait.Seconds())))
	}
	if len(applied) > 0 {
		header.Set("Preference-Applied", strings.Join(applied, ", "))
	}
}

// parseWait reads delta-seconds, at most maxWait. It returns 0 for a malformed value.
func parseWait(value string) time.Duration {
	if value == "" || strings.Trim(value, "0123456789") != "" {
		return 0
	}
	seconds, err := strconv.Atoi(value)
	if err != nil || seconds > int(maxWait/time.Second) { // digits only, so err means out of range
		return maxWait
	}
	return time.Duration(seconds) * time.Second
}

// nextPreference returns the first preference of a line, and the rest:
//
//	preference = token [ BWS "=" BWS word ] *( OWS ";" [ OWS parameter ] )
//
// The name is in lower case, the value without quotes. An empty value is the same as
// none. Parameters are ignored. The name of a malformed preference is "".
func nextPreference(line string) (name, value, rest string) {
	element, rest := cutUnquoted(line, ',')
	preference, _ := cutUnquoted(element, ';')
	name, value, _ = strings.Cut(preference, "=")
	name, value = strings.ToLower(strings.Trim(name, " \t")), strings.Trim(value, " \t")
	if strings.HasPrefix(value, `"`) {
		unquoted, ok := unquoteWord(value)
		if !ok {
			return "", "", rest
		}
		return validName(name), unquoted, rest
	}
	if value != "" && !isToken(value) {
		return "", "", rest
	}
	return validName(name), value, rest
}

func validName(name string) string {
	if !isToken(name) {
		return ""
	}
	return name
}

// cutUnquoted cuts s at the first sep outside of quotes.
func cutUnquoted(s string, sep byte) (before, after string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case s[i] == '\\' && quoted:
			i++
		case s[i] == sep && !quoted:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// unquoteWord reads a quoted-string of RFC 9110, which may escape any character.
func unquoteWord(s string) (string, bool) {
	var out strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return out.String(), i == len(s)-1
		case '\\':
			if i++; i == len(s) {
				return "", false
			}
		}
		out.WriteByte(s[i])
	}
	return "", false
}

// isToken reports whether s is a token of RFC 9110.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i] | 0x20
		if (c < 'a' || c > 'z') && (s[i] < '0' || s[i] > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(s[i])) {
			return false
		}
	}
	return s != ""
}
