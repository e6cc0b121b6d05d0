package stripetest

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

const maxBody = 1 << 20

type call struct {
	request *http.Request
	pattern string
	id      string // in the path
	key     string // random if the client sent none, as at Stripe
	form    *form
	record  *Request

	run       effect
	intent    *intent // created or changed by the call, and locked during it
	entry     *savedKey
	triggered []*Injection
}

// A response has exported fields for the state file.
type response struct {
	Status   int
	Body     []byte
	Original string // Original-Request
	Retry    string // Stripe-Should-Retry
	html     bool   // from a proxy, without Stripe's headers
	replayed string // Idempotent-Replayed
}

func abort() { panic(http.ErrAbortHandler) }

func (s *Server) handle(pattern string, prepare endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, malformed := s.receive(w, r, pattern)
		s.deliver(w, c, s.respond(c, malformed, prepare))
	}
}

func (s *Server) receive(w http.ResponseWriter, r *http.Request, pattern string) (*call, *apiError) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		abort() // the client closed the connection, or sends too much
	}
	parameters, malformed := parseForm(string(body), r.URL.RawQuery)
	c := &call{
		request: r,
		pattern: pattern,
		id:      r.PathValue("id"),
		form:    parameters,
		record:  &Request{ID: newID("req_", 14), Method: r.Method, Path: r.URL.Path, Endpoint: pattern, Body: body},
	}
	if r.Method == http.MethodPost {
		c.record.Key = r.Header.Get("Idempotency-Key")
		c.key = cmp.Or(c.record.Key, rand.Text())
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	c.record.Time = s.now()
	c.record.OrderID = s.orderOf(c)
	s.addRequest(c.record)
	return c, malformed
}

func (s *Server) orderOf(c *call) string {
	if order := c.form.values.Get("metadata[order_id]"); order != "" {
		return order
	}
	if pi, ok := s.intents.byID[cmp.Or(c.form.values.Get("payment_intent"), c.id)]; ok {
		return pi.Metadata["order_id"]
	}
	return ""
}

func (s *Server) respond(c *call, malformed *apiError, prepare endpoint) *response {
	if refused := authorize(c.request); refused != nil {
		return refused.response()
	}
	if resp := s.arrive(c); resp != nil {
		return resp
	}
	if malformed != nil {
		return malformed.response()
	}
	if resp := s.begin(c, prepare); resp != nil {
		return resp
	}
	for _, i := range c.triggered {
		s.wait(c, i)
	}
	return s.finish(c)
}

// authorize accepts test keys. Its errors contain no credential.
func authorize(r *http.Request) *apiError {
	_, key, _ := strings.Cut(r.Header.Get("Authorization"), "Bearer ")
	if user, _, ok := r.BasicAuth(); ok { // curl -u sk_test_x:
		key = user
	}
	switch {
	case key == "":
		return unauthorized("You did not provide an API key. You need to provide your API key in the " +
			"Authorization header, using Bearer auth (e.g. 'Authorization: Bearer YOUR_SECRET_KEY').")
	case strings.HasPrefix(key, "sk_live_"), strings.HasPrefix(key, "rk_live_"):
		return unauthorized("This is a fake Stripe that moves no money. It refuses live API keys: " +
			"use a test key, which starts with sk_test_, and consider replacing the key you just sent.")
	case !strings.HasPrefix(key, "sk_test_") && !strings.HasPrefix(key, "rk_test_"):
		return unauthorized("Invalid API Key provided: ***")
	}
	return nil
}

func (s *Server) arrive(c *call) *response {
	s.mu.Lock()
	triggered := s.trigger(c, onArrival)
	s.mu.Unlock()
	for _, i := range triggered {
		switch {
		case i.waits:
			s.wait(c, i)
		case i.refusal != nil:
			return i.refusal(c).response()
		case i.rule.Fault == Unavailable:
			return htmlResponse(http.StatusServiceUnavailable)
		default:
			abort()
		}
	}
	return nil
}

// begin validates the call and locks key and intent until finish, or returns a response.
func (s *Server) begin(c *call, prepare endpoint) *response {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		abort()
	}
	post := c.request.Method == http.MethodPost
	if post {
		if resp := s.findKey(c); resp != nil {
			return resp
		}
	}

	run, invalid := prepare(c)
	if invalid == nil && (post && c.intent != nil && c.intent.busy || len(s.trigger(c, onLock)) > 0) {
		invalid = lockTimeout(c)
	}
	if invalid != nil {
		resp := invalid.response()
		if post {
			resp.Original = c.record.ID
		}
		return resp
	}
	c.run = run
	if c.intent != nil {
		c.intent.busy = true
	}
	if post {
		c.entry = &savedKey{Key: []byte(c.key), Path: []byte(c.request.URL.Path), Params: c.record.Body, FirstUsed: s.now()}
		s.keys[c.key] = c.entry
	}
	c.triggered = s.trigger(c, onExecution)
	return nil
}

func (s *Server) finish(c *call) *response {
	s.mu.Lock()
	defer s.mu.Unlock()
	resp := s.outcome(c)
	if c.intent != nil {
		c.intent.busy = false
	}
	if c.entry != nil {
		resp.Original = c.record.ID
		resp.Retry = "false"
		c.entry.response = *resp
		if s.save(c.intent, c.entry) != nil {
			abort()
		}
	}
	return resp
}

func (s *Server) outcome(c *call) *response {
	failed := slices.IndexFunc(c.triggered, func(i *Injection) bool { return i.refusal != nil })
	if failed < 0 {
		return s.execute(c)
	}
	i := c.triggered[failed]
	switch {
	case i.rule.Fault == ErrorAfter, i.rule.Fault == ErrorLater && i.ended:
		s.execute(c)
	case i.rule.Fault == ErrorLater:
		i.later = append(i.later, func() {
			s.execute(c)
			_ = s.save(c.intent, nil) // after an error, begin ends each call
		})
	}
	return i.refusal(c).response()
}

func (s *Server) execute(c *call) *response {
	c.record.Executed = true
	object, refused := c.run()
	if refused != nil {
		return refused.response()
	}
	return &response{Status: http.StatusOK, Body: encode(object)}
}

func encode(object any) []byte {
	body, err := json.MarshalIndent(object, "", "  ")
	if err != nil {
		panic(err) // strings, integers and maps of them always encode
	}
	return append(body, '\n')
}

func (s *Server) deliver(w http.ResponseWriter, c *call, resp *response) {
	var triggered []*Injection
	s.mu.Lock()
	if c.record.Executed || c.record.Replayed {
		triggered = s.trigger(c, onDelivery)
	}
	s.mu.Unlock()
	var fault Fault
	for _, i := range triggered {
		s.wait(c, i)
		fault = i.rule.Fault
	}
	switch fault {
	case CloseAfter:
		abort()
	case ResetAfter:
		reset(w)
		return
	case BadGateway:
		resp = htmlResponse(http.StatusBadGateway)
	}
	s.mu.Lock()
	c.record.Status = resp.Status // before the client gets it
	w.Header().Set("Date", s.now().UTC().Format(http.TimeFormat))
	s.mu.Unlock()
	resp.writeHeader(w, c)
	if fault == CutBody {
		_, _ = w.Write(resp.Body[:len(resp.Body)/2])
		_ = http.NewResponseController(w).Flush()
		abort()
	}
	_, _ = w.Write(resp.Body)
}

func (resp *response) writeHeader(w http.ResponseWriter, c *call) {
	values := map[string]string{"Content-Type": "application/json", "Content-Length": strconv.Itoa(len(resp.Body))}
	switch {
	case resp.html:
		values["Content-Type"] = "text/html; charset=utf-8"
	case resp.Status == http.StatusUnauthorized: // without a request id, like the next one
		values["WWW-Authenticate"] = `Bearer realm="Stripe"`
	case resp.Status == http.StatusForbidden:
	default:
		values["Request-Id"] = c.record.ID
		values["Stripe-Version"] = cmp.Or(c.request.Header.Get("Stripe-Version"), apiVersion)
		values["Idempotency-Key"] = c.key
		values["Original-Request"] = resp.Original
		values["Stripe-Should-Retry"] = resp.Retry
		values["Idempotent-Replayed"] = resp.replayed
	}
	for name, value := range values {
		if value != "" {
			w.Header().Set(name, value)
		}
	}
	w.WriteHeader(resp.Status)
}

func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		abort()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
