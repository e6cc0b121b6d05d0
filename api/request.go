package api

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
)

const maxBody = 64 << 10 // bytes: a hundred items with full descriptions

// readBody reports a body that ends early as interrupted and not as malformed, because a client that
// corrects its request might use a new key and pay twice.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if !acceptable(r.Header, w.Header()) {
		return nil, errUnsupportedMedia
	}
	tooLarge := fmt.Errorf("%w: at most %d KiB are allowed here", errTooLarge, limit>>10)
	if r.ContentLength > limit {
		return nil, tooLarge
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	_, overrun := errors.AsType[*http.MaxBytesError](err)
	switch {
	case overrun:
		return nil, tooLarge
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, net.ErrClosed):
		return nil, errBodyCut
	case err != nil:
		return nil, fmt.Errorf("%w: the body is not framed as HTTP should be", idempotency.ErrMalformed)
	}
	return body, nil
}

// acceptable reports whether a body is JSON without a coding. Otherwise it sets headers of the
// response that list what is accepted.
func acceptable(header, response http.Header) bool {
	encoding := strings.Join(header.Values("Content-Encoding"), ",")
	encoded := encoding != "" && !strings.EqualFold(encoding, "identity")
	if encoded {
		response.Set("Accept-Encoding", "identity")
	}
	mediaType, params, err := mime.ParseMediaType(strings.Join(header.Values("Content-Type"), ","))
	charset, given := params["charset"]
	if encoded || err != nil || mediaType != "application/json" || given && !strings.EqualFold(charset, "utf-8") {
		response.Set("Accept", "application/json")
		return false
	}
	return true
}

// readKey accepts the raw key, or the key as a String of RFC 9651.
func readKey(header http.Header) (idempotency.Key, error) {
	if len(header.Values("Idempotency-Key")) > 1 {
		return "", idempotency.ErrInvalidKey
	}
	line := strings.Trim(header.Get("Idempotency-Key"), " \t")
	if line == "" {
		return "", errKeyMissing
	}
	if strings.HasPrefix(line, `"`) {
		quoted := quotedKey.FindStringSubmatch(line)
		if quoted == nil {
			return "", idempotency.ErrInvalidKey
		}
		line = unescape.Replace(quoted[1])
	}
	return idempotency.ParseKey(line)
}

var quotedKey = regexp.MustCompile(`^"((?:[^"\\]|\\["\\])*)"$`)

var unescape = strings.NewReplacer(`\\`, `\`, `\`, "")

// maxWait is in seconds. Proxies close a silent connection after a minute, and a run may follow a wait.
const maxWait = 30

type preferences struct {
	respondAsync bool
	wait         time.Duration // 0 if there is none
}

// readPreferences uses the first wait (RFC 7240).
func readPreferences(header http.Header) (p preferences) {
	for element := range strings.SplitSeq(strings.Join(header.Values("Prefer"), ","), ",") {
		preference, _, _ := strings.Cut(element, ";")
		name, value, _ := strings.Cut(strings.ToLower(preference), "=")
		name, value = strings.TrimSpace(name), strings.Trim(value, " \t\"")
		switch name {
		case "respond-async":
			p.respondAsync = value == ""
		case "wait":
			if seconds, err := strconv.Atoi(value); err == nil && p.wait == 0 {
				p.wait = time.Duration(min(max(seconds, 0), maxWait)) * time.Second
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

// parseID accepts the canonical form of a UUID only; uuid.Parse accepts four forms.
func parseID(s string) (uuid.UUID, error) {
	id, err := uuid.Parse(s)
	if err != nil || id.String() != s || id == uuid.Nil {
		return uuid.Nil, httpjson.ErrNotFound
	}
	return id, nil
}

// readQuery returns the parameters of a query. Each must have a known name and be given once.
func readQuery(rawQuery string, known ...string) (map[string]string, error) {
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return nil, httpjson.Invalid("", httpjson.CodeInvalidFormat, "the query string cannot be read")
	}
	values := map[string]string{}
	for name, all := range query {
		switch {
		case !slices.Contains(known, name):
			return nil, httpjson.Invalid("", httpjson.CodeUnknownParameter,
				"the query string has unknown parameters; known are: "+cmp.Or(strings.Join(known, ", "), "none"))
		case len(all) > 1:
			return nil, httpjson.Invalid("/"+name, httpjson.CodeDuplicateParameter, "must be given once")
		}
		values[name] = all[0]
	}
	return values, nil
}

// pathIDs returns the ids in the path. Another form of an id names nothing.
func pathIDs(r *http.Request) (ids []uuid.UUID, err error) {
	for _, value := range chi.RouteContext(r.Context()).URLParams.Values {
		id, err := parseID(value)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}
