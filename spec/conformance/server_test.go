package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// slowFor is how long a request with "slow" is in progress.
const slowFor = 300 * time.Millisecond

// server implements the profile in memory. It executes POST /things and POST /others.
// faults are the violations that it has.
type server struct {
	url    string
	faults map[string]bool

	mu      sync.Mutex
	keys    map[string]*entry // by account and key
	things  map[string][]string
	mails   int // one for each effect
	running int
	epoch   int // number of crashes
	down    bool
	broken  bool // the dependency

	location string // of the last thing
}

// entry is a used key.
type entry struct {
	fingerprint string
	stored      *answer
	thing       string // what it created
	replays     int
	expired     bool          // the response is deleted
	epoch       int           // of the process that executes it
	done        chan struct{} // closed at the end of the execution
}

type answer struct {
	status   int
	media    string
	location string
	body     []byte
}

func newServer(t *testing.T, faults ...string) *server {
	t.Helper()
	s := &server{faults: make(map[string]bool), keys: make(map[string]*entry), things: make(map[string][]string)}
	for _, fault := range faults {
		s.faults[fault] = true
	}
	listening := httptest.NewServer(s)
	t.Cleanup(listening.Close)
	s.url = listening.URL
	return s
}

func (s *server) hooks() hooks {
	change := func(apply func()) hook {
		return func(context.Context, string) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			apply()
			return nil
		}
	}
	return hooks{
		kill:      change(func() { s.down, s.epoch, s.running = true, s.epoch+1, 0 }),
		start:     change(func() { s.down = false }),
		interrupt: change(func() { s.broken = true }),
		restore:   change(func() { s.broken = false }),
		expire: change(func() {
			for _, e := range s.keys {
				if e.stored != nil {
					e.stored, e.expired = nil, true
				}
			}
		}),
	}
}

// call is one request.
type call struct {
	*server
	w       http.ResponseWriter
	r       *http.Request
	body    []byte
	account string
	key     string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	c := &call{server: s, w: w, r: r, body: body}
	s.mu.Lock()
	down, epoch := s.down, s.epoch
	s.mu.Unlock()
	if down {
		panic(http.ErrAbortHandler)
	}
	response, header := c.handle()
	s.mu.Lock()
	crashed := s.epoch != epoch
	s.mu.Unlock()
	if crashed {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), header)
	if origin := r.Header.Get("Origin"); origin != "" {
		w.Header().Set("Access-Control-Allow-Origin", origin)
		w.Header().Set("Access-Control-Expose-Headers", "Idempotency-Key, Idempotent-Replayed, Retry-After, Location")
	}
	if !s.faults["cached"] {
		w.Header().Set("Cache-Control", "no-store")
	}
	if sent := r.Header.Get("Idempotency-Key"); sent != "" && c.account != "" && !s.faults["key not repeated"] {
		w.Header().Set("Idempotency-Key", sent)
	}
	w.Header().Set("Content-Type", response.media)
	if response.location != "" {
		w.Header().Set("Location", response.location)
	}
	w.WriteHeader(response.status)
	_, _ = w.Write(response.body)
}

func (c *call) problem(status int, kind, retry, outcome string, more ...string) (*answer, http.Header) {
	if c.faults["one problem type"] && kind == "reused" {
		kind = "invalid"
	}
	members := map[string]any{"type": "/problems/" + kind, "status": status, "retry": retry, "outcome": outcome}
	for i := 0; i < len(more); i += 2 {
		members[more[i]] = more[i+1]
	}
	if c.faults["no outcome"] {
		delete(members, "outcome")
	}
	if c.faults["wrong verdict of 400"] && status == http.StatusBadRequest {
		members["retry"] = "new-key"
	}
	media := "application/problem+json"
	if c.faults["no problem documents"] && kind == "form" {
		media = "text/plain"
	}
	body, _ := json.Marshal(members)
	header := make(http.Header)
	if (status == http.StatusConflict || status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests) && !c.faults["no Retry-After"] {
		header.Set("Retry-After", "0")
	}
	return &answer{status: status, media: media, body: body}, header
}

func (c *call) form(status int, kind string) (*answer, http.Header) {
	return c.problem(status, kind, "corrected", "unknown")
}

var accounts = map[string]string{"Bearer secret-one": "one", "Bearer secret-uno": "one", "Bearer secret-two": "two", reader: "one"}

// reader may not execute operations.
const reader = "Bearer secret-read"

func (c *call) handle() (*answer, http.Header) {
	if c.faults["lookup before authentication"] && c.r.Header.Get("Authorization") == "" {
		c.mu.Lock()
		known := c.keys["one "+c.r.Header.Get("Idempotency-Key")] != nil
		c.mu.Unlock()
		if known {
			return c.form(http.StatusUnauthorized, "unauthorized-known")
		}
	}
	if c.r.Method == http.MethodOptions && c.r.Header.Get("Origin") != "" {
		return c.preflight()
	}
	if c.account = accounts[c.r.Header.Get("Authorization")]; c.account == "" {
		return c.form(http.StatusUnauthorized, "unauthorized")
	}
	switch {
	case c.faults["keys of reads are rejected"] && c.r.Method == http.MethodGet && c.r.Header.Get("Idempotency-Key") != "":
		return c.form(http.StatusBadRequest, "form")
	case c.r.Method == http.MethodPost && c.r.Header.Get("Authorization") == reader && !c.faults["replays to readers"]:
		return c.form(http.StatusForbidden, "forbidden")
	case c.r.Method == http.MethodGet && c.r.URL.Path == "/things":
		return c.list()
	case c.r.Method == http.MethodGet && strings.HasPrefix(c.r.URL.Path, "/keys/"):
		return c.status()
	case c.r.Method == http.MethodPost && (c.r.URL.Path == "/things" || c.r.URL.Path == "/others"):
		return c.post()
	default:
		return c.problem(http.StatusNotFound, "not-found", "never", "unknown")
	}
}

// preflight allows scripts of other origins.
func (c *call) preflight() (*answer, http.Header) {
	allowed := "authorization, content-type"
	if !c.faults["browsers send no key"] {
		allowed += ", idempotency-key"
	}
	return &answer{status: http.StatusNoContent}, http.Header{
		"Access-Control-Allow-Origin": {c.r.Header.Get("Origin")}, "Access-Control-Allow-Headers": {allowed},
	}
}

func (c *call) list() (*answer, http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	things := make([]map[string]any, 0)
	for _, id := range c.things[c.account] {
		things = append(things, map[string]any{"id": id, "state": "made"})
	}
	body, _ := json.Marshal(map[string]any{"things": things, "mails": c.mails})
	return &answer{status: http.StatusOK, media: "application/json", body: body}, nil
}

func (c *call) status() (*answer, http.Header) {
	key, _ := url.PathUnescape(strings.TrimPrefix(c.r.URL.EscapedPath(), "/keys/"))
	c.mu.Lock()
	e := c.keys[c.name(key)]
	c.mu.Unlock()
	if e == nil || c.faults["no status of finished keys"] && e.stored != nil {
		outcome := "unknown"
		if c.faults["a 404 with the outcome none"] {
			outcome = "none"
		}
		return c.problem(http.StatusNotFound, "not-found", "never", outcome)
	}
	kept := 72 * time.Hour
	if c.faults["short retention"] {
		kept = time.Hour
	}
	if c.faults["lifetime in seconds"] {
		return &answer{status: http.StatusOK, media: "application/json", body: []byte(`{"expires_at":259200}`)}, nil
	}
	body, _ := json.Marshal(map[string]any{"expires_at": time.Now().Add(kept).UTC().Format(time.RFC3339)})
	return &answer{status: http.StatusOK, media: "application/json", body: body}, nil
}

func (c *call) name(key string) string {
	if c.faults["keys of all accounts"] {
		return key
	}
	if c.faults["keys in any case"] {
		key = strings.ToLower(key)
	}
	if c.faults["keys cut at a comma"] {
		key, _, _ = strings.Cut(key, ",")
	}
	if decoded, err := url.PathUnescape(key); err == nil && c.faults["keys decoded"] {
		key = decoded
	}
	return c.account + " " + key
}

// parseKey returns the raw form of the key.
func (c *call) parseKey() (string, bool) {
	lines := c.r.Header.Values("Idempotency-Key")
	if len(lines) == 0 || len(lines) > 1 && !c.faults["several keys"] {
		return "", false
	}
	key := lines[0]
	if c.faults["forms differ"] {
		return key, len(key) > 15 && !strings.Contains(key, `";`) && validKey(strings.ReplaceAll(key, `"`, "x"))
	}
	if strings.HasPrefix(key, `"`) {
		inner, ok := strings.CutSuffix(key[1:], `"`)
		plain := strings.NewReplacer(`\\`, "", `\"`, "").Replace(inner)
		if !ok || strings.ContainsAny(plain, `"\`) {
			return "", false
		}
		key = strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(inner)
	}
	return key, validKey(key) || c.faults["short keys"] && len(key) >= 8 && len(key) < 16
}

func validKey(key string) bool {
	return len(key) >= 16 && len(key) <= 255 && !strings.ContainsFunc(key, func(r rune) bool { return r < '!' || r > '~' })
}

// canonical returns the values of a JSON body in one form.
func (c *call) canonical() (string, bool) {
	decoder := json.NewDecoder(strings.NewReader(string(c.body)))
	decoder.UseNumber()
	names := make(map[string]bool)
	unique := strings.ToValidUTF8(string(c.body), "") == string(c.body)
	var value map[string]any
	if err := decoder.Decode(&value); err != nil {
		return "", false
	}
	if _, err := decoder.Token(); err != io.EOF {
		return "", false
	}
	if tokens := json.NewDecoder(strings.NewReader(string(c.body))); tokens != nil {
		for depth, name := 0, false; ; {
			token, err := tokens.Token()
			if err != nil {
				break
			}
			switch token {
			case json.Delim('{'), json.Delim('['):
				depth++
				name = depth == 1
				continue
			case json.Delim('}'), json.Delim(']'):
				depth--
				name = depth == 1
				continue
			}
			if text, ok := token.(string); ok && depth == 1 && name {
				unique = unique && !names[text]
				names[text] = true
				name = false
			} else if depth == 1 {
				name = true
			}
		}
	}
	exact := true
	eachValue(value, "", func(_ string, v any, set func(any)) {
		if number, ok := v.(json.Number); ok {
			double, err := number.Float64()
			exact = exact && err == nil && len(number) < 17
			set(double)
		}
	})
	text, _ := json.Marshal(value)
	return string(text), unique && exact || c.faults["ambiguous JSON"]
}

var digits = regexp.MustCompile(`"(\d+)"`)

func (c *call) fingerprint(canonical string) string {
	if c.faults["no fingerprint"] {
		return ""
	}
	if c.faults["fingerprint of bytes"] {
		canonical = string(c.body)
	}
	if c.faults["absent is false"] && !strings.Contains(canonical, `"gift"`) {
		canonical = strings.Replace(canonical, `","`, `","gift":false,"`, 1)
	}
	if c.faults["text is a number"] {
		canonical = digits.ReplaceAllString(canonical, "$1")
	}
	if c.faults["fingerprint without gift"] {
		canonical = strings.NewReplacer(`"gift":true`, "", `"gift":false`, "").Replace(canonical)
	}
	covered := c.r.Method + c.r.URL.Path + canonical
	if c.faults["fingerprint without path"] {
		covered = canonical
	}
	if !c.faults["fingerprint without the version"] {
		covered += c.r.Header.Get("Api-Version")
	}
	if c.faults["fingerprint of the credential"] {
		covered += c.r.Header.Get("Authorization")
	}
	if c.faults["fingerprint of header fields"] {
		covered += c.r.Header.Get("X-Request-Id")
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(covered)))
}

func (c *call) post() (*answer, http.Header) {
	if len(c.r.Header.Values("Idempotency-Key")) > 0 || !c.faults["key optional"] {
		key, ok := c.parseKey()
		if !ok {
			return c.form(http.StatusBadRequest, "form")
		}
		c.key = key
	} else {
		c.key = newKey()
	}
	if c.r.URL.RawQuery != "" && !c.faults["query ignored"] {
		return c.form(http.StatusUnprocessableEntity, "query")
	}
	if c.r.Header.Get("Content-Type") != "application/json" {
		return c.form(http.StatusUnsupportedMediaType, "media-type")
	}
	canonical, ok := c.canonical()
	if !ok {
		return c.form(http.StatusBadRequest, "form")
	}
	return c.decide(canonical)
}

type thing struct {
	Color    string
	Quantity float64
	Slow     bool
}

// decide has the order of the profile: reused, replay, in progress, takeover, new.
func (c *call) decide(canonical string) (*answer, http.Header) {
	var value thing
	invalid := json.Unmarshal([]byte(canonical), &value) != nil || value.Quantity < 1 || value.Color == ""
	name := c.name(c.key)
	fingerprint := c.fingerprint(canonical)
	if c.faults["validates first"] && invalid {
		return c.problem(http.StatusUnprocessableEntity, "invalid", "corrected", "none")
	}
	c.mu.Lock()
	e := c.keys[name]
	if c.faults["checks, then stores"] {
		c.mu.Unlock()
		<-time.After(5 * time.Millisecond)
		c.mu.Lock()
	}
	if e != nil && e.expired && c.faults["expired keys are executed"] {
		e = nil
	}
	if e == nil && c.r.Header.Get("Authorization") == reader {
		c.mu.Unlock()
		return c.form(http.StatusForbidden, "forbidden")
	}
	if e == nil {
		return c.begin(name, fingerprint, value, invalid)
	}
	defer c.mu.Unlock()
	outcome := "unknown"
	if e.stored != nil || e.expired {
		outcome = "final"
	}
	switch {
	case e.expired:
		return c.problem(http.StatusUnprocessableEntity, "expired", "never", "final", "thing", e.thing)
	case e.fingerprint != fingerprint && (e.stored != nil || !c.faults["no check in progress"]):
		retry := "never"
		if c.faults["wrong verdict of reuse"] {
			retry = "corrected"
		}
		return c.problem(http.StatusUnprocessableEntity, "reused", retry, outcome)
	case e.stored != nil:
		return c.replay(e)
	case e.epoch == c.epoch || e.epoch >= 0 && c.faults["locked forever"]:
		return c.conflict(e)
	default:
		e.epoch, e.done = c.epoch, make(chan struct{})
		return c.wait(e, value)
	}
}

func (c *call) replay(e *entry) (*answer, http.Header) {
	stored := *e.stored
	if c.faults["replay serialised again"] {
		stored.body = append(slices.Clone(stored.body), '\n')
	}
	if c.faults["replay without Location"] {
		stored.location = ""
	}
	if c.faults["replay with the last Location"] && stored.location != "" {
		stored.location = c.location
	}
	if c.faults["replay with 200"] && stored.status == http.StatusCreated {
		stored.status = http.StatusOK
	}
	if e.replays++; e.replays > 3 && c.faults["replay has an effect"] {
		c.mails++
	}
	header := make(http.Header)
	if !c.faults["replay not marked"] {
		header.Set("Idempotent-Replayed", "true")
	}
	return &stored, header
}

func (c *call) conflict(e *entry) (*answer, http.Header) {
	waits := strings.Contains(c.r.Header.Get("Prefer"), "wait=")
	if waits && !c.faults["wait ignored"] || c.faults["duplicates wait"] {
		done := e.done
		c.mu.Unlock()
		<-done
		c.mu.Lock()
		if e.stored != nil {
			response, header := c.replay(e)
			header.Set("Preference-Applied", "wait")
			return response, header
		}
	}
	retry := "same-key"
	if c.faults["wrong verdict of 409"] {
		retry = "never"
	}
	response, header := c.problem(http.StatusConflict, "in-progress", retry, "unknown")
	if c.faults["409 stored"] {
		e.stored = response
	}
	return response, header
}

// mostRunning is the number of requests in progress that overload the server.
const mostRunning = 16

// begin executes a new key. It is called with the lock.
func (c *call) begin(name, fingerprint string, value thing, invalid bool) (*answer, http.Header) {
	e := &entry{fingerprint: fingerprint, epoch: c.epoch, done: make(chan struct{})}
	switch {
	case invalid:
		if c.faults["rejected requests use keys"] {
			c.keys[name] = e
		}
		c.mu.Unlock()
		return c.problem(http.StatusUnprocessableEntity, "invalid", "corrected", "none")
	case c.running >= mostRunning:
		if c.faults["overload stores the key"] {
			e.epoch = -1
			c.keys[name] = e
		}
		c.mu.Unlock()
		return c.problem(http.StatusServiceUnavailable, "overload", "same-key", "none")
	}
	c.keys[name] = e
	defer c.mu.Unlock()
	return c.wait(e, value)
}

// wait executes a request, and returns its response or 202. It is called with the lock.
func (c *call) wait(e *entry, value thing) (*answer, http.Header) {
	c.running++
	result := make(chan *answer, 1)
	ctx := context.WithoutCancel(c.r.Context())
	if c.faults["disconnection stops the request"] {
		ctx = c.r.Context()
	}
	go c.execute(ctx, e, value, result)
	if c.r.Header.Get("Prefer") == "respond-async" {
		header := make(http.Header)
		if !c.faults["preference not named"] {
			header.Set("Preference-Applied", "respond-async")
		}
		return &answer{status: http.StatusAccepted, media: "application/json", location: "/keys/" + c.key, body: []byte("{}")}, header
	}
	c.mu.Unlock()
	response := <-result
	c.mu.Lock()
	if response == nil {
		if c.faults["declines while interrupted"] && c.broken {
			time.AfterFunc(slowFor, func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.effect()
			})
			e.stored, _ = c.problem(http.StatusPaymentRequired, "declined", "new-key", "final")
			return e.stored, nil
		}
		if c.faults["500 stored"] && c.broken {
			e.stored, _ = c.problem(http.StatusServiceUnavailable, "interrupted", "same-key", "unknown")
		}
		return c.problem(http.StatusServiceUnavailable, "interrupted", "same-key", "unknown")
	}
	return response, nil
}

// execute causes the effect and stores the response, unless the server crashes before.
func (c *call) execute(ctx context.Context, e *entry, value thing, result chan<- *answer) {
	c.mu.Lock()
	epoch, done, broken := e.epoch, e.done, c.broken
	e.thing = ""
	if c.faults["effect before its record"] && !broken {
		e.thing = c.effect()
	}
	c.mu.Unlock()
	stopped := false
	if value.Slow {
		select {
		case <-time.After(slowFor):
		case <-ctx.Done():
			stopped = true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(done)
	if epoch == c.epoch {
		c.running--
	}
	if epoch != c.epoch || broken || stopped {
		if epoch == c.epoch {
			e.epoch = -1 // the next same request takes over
		}
		result <- nil
		return
	}
	response := c.finish(e, value)
	if c.faults["lost responses are forgotten"] && value.Slow && c.r.Header.Get("Prefer") == "" && c.r.Context().Err() != nil {
		e.stored, e.epoch = nil, -1
	}
	result <- response
}

func (c *call) effect() string {
	id := newKey()
	c.mails++
	c.things[c.account] = append(c.things[c.account], id)
	return id
}

func (c *call) finish(e *entry, value thing) *answer {
	if value.Color == "declined" {
		e.stored, _ = c.problem(http.StatusPaymentRequired, "declined", "new-key", "final", "id", newKey())
		response := e.stored
		if c.faults["failures not stored"] {
			e.stored, e.epoch = nil, -1
		}
		return response
	}
	if e.thing == "" {
		e.thing = c.effect()
	}
	body, _ := json.Marshal(map[string]any{"id": e.thing, "color": value.Color, "quantity": strconv.Itoa(int(value.Quantity))})
	response := &answer{status: http.StatusCreated, media: "application/json", location: "/things/" + e.thing, body: body}
	c.location = response.location
	if e.stored == nil { // otherwise it is a stored 409
		e.stored = response
	}
	return response
}
