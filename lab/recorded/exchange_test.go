package recorded

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An exchange is a line of a recording. An event has only a body.
type exchange struct {
	Kind       string          `json:"kind"`
	Source     string          `json:"source_repo"`
	Recorded   string          `json:"recorded"`
	APIVersion string          `json:"api_version"`
	Method     string          `json:"method"`
	Path       string          `json:"path"`
	Params     map[string]any  `json:"params"`
	KeySent    bool            `json:"idempotency_key_sent"`
	Status     int             `json:"status"`
	Headers    map[string]any  `json:"headers"`
	Raw        json.RawMessage `json:"body"`

	Body object // nil if it is no JSON object
	at   string // file:line
}

func (e exchange) isEvent() bool { return e.Method == "" }

// quoted reports whether people have copied the body, and maybe only a part of it.
func (e exchange) quoted() bool { return strings.HasPrefix(e.Recorded, "quoted") }

func (e exchange) param(name string) string {
	if value, ok := e.Params[name]; ok && value != nil {
		return fmt.Sprint(value)
	}
	return ""
}

func (e exchange) header(name string) string {
	for key, value := range e.Headers {
		if strings.EqualFold(key, name) {
			return fmt.Sprint(value)
		}
	}
	return ""
}

// failure returns Stripe's error.
func (e exchange) failure() object {
	if e.Status < http.StatusBadRequest {
		return nil
	}
	return e.Body.object("error")
}

// intent returns the intent in the response, also of an error, or nil.
func (e exchange) intent() object {
	if e.Body.text("object") == "payment_intent" {
		return e.Body
	}
	return e.failure().object("payment_intent")
}

// listed returns the response about a dispute as a list with only this dispute, because the client never reads
// a single one. Stripe returns the dispute also for its evidence.
func (e exchange) listed() exchange {
	if e.Status != http.StatusOK || e.Body.text("object") != "dispute" {
		return e
	}
	e.Body = object{"object": "list", "url": "/v1/disputes", "has_more": false, "data": []any{map[string]any(e.Body)}}
	e.Raw = e.Body.encode()
	e.Method, e.Path, e.Params, e.KeySent = http.MethodGet, "/v1/disputes", nil, false
	headers := map[string]any{}
	for _, name := range []string{"Date", "Request-Id"} { // those of a read
		if value := e.header(name); value != "" {
			headers[name] = value
		}
	}
	e.Headers = headers
	return e
}

// response is what a server answers.
type response struct {
	status int
	header http.Header
	body   []byte
}

func (e exchange) response() response {
	header := http.Header{}
	for name := range e.Headers {
		header.Set(name, e.header(name))
	}
	body := []byte(e.Raw)
	if e.Body == nil { // HTML of a proxy
		var text string
		_ = json.Unmarshal(e.Raw, &text) // otherwise empty
		body = []byte(text)
	}
	return response{e.Status, header, body}
}

func (r response) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), r.header)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.status)
	_, _ = w.Write(r.body)
}

// object is a decoded JSON object. Its methods accept nil, and a missing member is a zero value.
type object map[string]any

func (o object) object(name string) object {
	member, _ := o[name].(map[string]any)
	return member
}

func (o object) list(name string) (objects []object) {
	members, _ := o[name].([]any)
	for _, member := range members {
		m, _ := member.(map[string]any)
		objects = append(objects, m)
	}
	return objects
}

// text returns a string, or the id of an object, as members can be expanded.
func (o object) text(name string) string {
	if s, ok := o[name].(string); ok {
		return s
	}
	id, _ := o.object(name)["id"].(string)
	return id
}

func (o object) number(name string) int64 {
	n, _ := o[name].(json.Number)
	i, _ := n.Int64()
	return i
}

func (o object) has(name string) bool { _, ok := o[name]; return ok }

func (o object) metadata() map[string]string {
	metadata := map[string]string{}
	for name, value := range o.object("metadata") {
		metadata[name] = fmt.Sprint(value)
	}
	return metadata
}

func (o object) encode() []byte {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // it was decoded
	}
	return text
}

func (o object) copy() object {
	c, err := decode(o.encode())
	if err != nil {
		panic(err)
	}
	return c
}

func decode(text []byte) (o object, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return o, d.Decode(&o)
}

// read returns the lines of a folder, or of a file. A response that several lines have counts once.
func read(t *testing.T, path string) (all []exchange) {
	t.Helper()
	files := []string{path}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		files, err = filepath.Glob(filepath.Join(path, "*.jsonl"))
		require.NoError(t, err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for i, line := range bytes.Split(text, []byte("\n")) {
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			e := exchange{at: fmt.Sprintf("%s:%d", filepath.Base(file), i+1)}
			require.NoError(t, json.Unmarshal(line, &e), e.at)
			e.Body, _ = decode(e.Raw)
			body := []byte(e.Raw)
			if e.Body != nil {
				body = e.Body.encode() // in one order of members
			}
			if response := fmt.Sprintf("%s %s %d %s", e.Method, e.Path, e.Status, body); !seen[response] {
				seen[response] = true
				all = append(all, e)
			}
		}
	}
	require.NotEmpty(t, all, "%s has no recordings", path)
	return all
}
