package stripetest

import (
	"encoding/json"
	"net/http"
	"slices"
)

type call struct {
	request *http.Request
	pattern string
	id      string // the {id} in the path
	key     string // random if the client sent none, as at Stripe
	form    *form
	record  *Request
	intent  *intent // that the call creates or changes; locked while it is executed
}

// An execution is a valid call that will have an effect.
type execution struct {
	*call
	run       effect
	entry     *savedKey // nil for a GET
	triggered []*Injection
}

// A response omits the headers. nil closes the connection.
type response struct {
	status   int
	body     []byte
	html     bool // from a proxy, without Stripe's headers
	original string
	retry    string // Stripe-Should-Retry
	replayed bool
}

func (s *Server) handle(pattern string, prepare endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, malformed, err := s.receive(r, pattern)
		if err != nil {
			panic(http.ErrAbortHandler) // the client closed the connection
		}
		s.deliver(w, c, s.respond(c, malformed, prepare))
	}
}

func (s *Server) respond(c *call, malformed *apiError, prepare endpoint) *response {
	if refused := authorize(c.request); refused != nil {
		return refused.response()
	}
	if refused := s.permit(c); refused != nil {
		return refused.response()
	}
	if resp, arrived := s.arrive(c); !arrived {
		return resp
	}
	if malformed != nil {
		return malformed.response()
	}
	x, resp := s.begin(c, prepare)
	if x == nil {
		return resp
	}
	for _, i := range x.triggered {
		if !s.wait(c, i) {
			return nil
		}
	}
	return s.finish(x)
}

func (s *Server) arrive(c *call) (resp *response, arrived bool) {
	s.mu.Lock()
	triggered := s.trigger(c, onArrival)
	s.mu.Unlock()
	for _, i := range triggered {
		switch i.rule.Fault {
		case HoldArrival:
			if !s.wait(c, i) {
				return nil, false
			}
		case CloseBefore:
			return nil, false
		case RateLimit:
			return rateLimited().response(), false
		case Unauthorized:
			return unauthorized("Invalid API Key provided: sk_test_***").response(), false
		case Unavailable:
			return htmlResponse(http.StatusServiceUnavailable), false
		case KeyInUse:
			return keyInUse(c.key).response(), false
		}
	}
	return nil, true
}

// begin validates the call, and locks the key and the intent until finish. If there is
// nothing to execute, it returns the response.
func (s *Server) begin(c *call, prepare endpoint) (*execution, *response) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.unsaved && s.saveAll() != nil {
		return nil, nil
	}
	if c.request.Method != http.MethodPost {
		run, invalid := prepare(c)
		if invalid != nil {
			return nil, invalid.response()
		}
		return &execution{call: c, run: run, triggered: s.trigger(c, onExecution)}, nil
	}

	use := keyUse{key: c.key, path: c.request.URL.Path, params: c.form.canonical()}
	if s.compareBytes {
		use.params = string(c.record.Body)
	}
	saved, refused := s.keys.find(use, s.now())
	switch {
	case refused != nil:
		return nil, refused.response()
	case saved != nil:
		c.record.Replayed = true
		return nil, saved
	}

	run, invalid := prepare(c)
	if invalid == nil && (c.intent != nil && c.intent.busy || len(s.trigger(c, onLock)) > 0) {
		invalid = lockTimeout()
	}
	if invalid != nil {
		resp := invalid.response()
		resp.original = c.record.ID
		return nil, resp
	}
	if c.intent != nil {
		c.intent.busy = true
	}
	return &execution{
		call:      c,
		run:       run,
		entry:     s.keys.begin(use, s.now()),
		triggered: s.trigger(c, onExecution),
	}, nil
}

func (s *Server) finish(x *execution) *response {
	s.mu.Lock()
	defer s.mu.Unlock()

	resp := s.outcome(x)
	if x.intent != nil {
		x.intent.busy = false
	}
	if x.entry != nil {
		resp.original = x.record.ID
		resp.retry = "false"
		x.entry.save(resp)
		if s.save(x.intent, x.entry) != nil {
			return nil
		}
	}
	return resp
}

func (s *Server) outcome(x *execution) *response {
	failed := slices.IndexFunc(x.triggered, func(i *Injection) bool { return i.rule.Fault.fails() })
	if failed < 0 {
		return s.execute(x)
	}
	switch i := x.triggered[failed]; {
	case i.rule.Fault == AccountNotReady:
		return accountNotReady().response()
	case i.rule.Fault == NoSearch:
		return searchNotOffered().response()
	case i.rule.Fault == ErrorAfter, i.rule.Fault == ErrorLater && i.ended:
		s.execute(x)
	case i.rule.Fault == ErrorLater:
		i.later = append(i.later, func() {
			s.execute(x)
			_ = s.save(x.intent, nil) // begin tries again
		})
	}
	return serverError().response()
}

func (s *Server) execute(x *execution) *response {
	x.record.Executed = true
	object, refused := x.run()
	if refused != nil {
		return refused.response()
	}
	return &response{status: http.StatusOK, body: encode(object)}
}

func encode(object any) []byte {
	body, err := json.MarshalIndent(object, "", "  ")
	if err != nil {
		panic(err) // strings, integers and maps of them always encode
	}
	return append(body, '\n')
}
