package stripetest

import (
	"encoding/json"
	"net/http"
	"slices"
)

// A call is one request on its way through the server.
type call struct {
	request *http.Request
	pattern string
	id      string // the {id} in the path
	key     string // made up when the client sent none, as Stripe does
	form    *form
	record  *Request
	intent  *intent // the one it works on, which nobody else may meanwhile
}

// An execution is a call past its validation: it will have an effect.
type execution struct {
	*call
	run    effect
	entry  *savedKey // nil for a GET
	struck []*Injection
}

// An answer is a response before its headers. A nil one closes the connection.
type answer struct {
	status   int
	body     []byte
	html     bool // from a proxy in front, which knows no Stripe headers
	original string
	retry    string // Stripe-Should-Retry
	replayed bool
}

// handle is the order of work on every request: read it, check the
// credentials, look at the key, validate, run, save, answer.
func (s *Server) handle(pattern string, prepare endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, malformed, err := s.receive(r, pattern)
		if err != nil {
			panic(http.ErrAbortHandler) // the client left before it had said everything
		}
		s.deliver(w, c, s.answer(c, malformed, prepare))
	}
}

func (s *Server) answer(c *call, malformed *apiError, prepare endpoint) *answer {
	if refused := authorize(c.request); refused != nil {
		return refused.answer()
	}
	if a, arrived := s.arrive(c); !arrived {
		return a
	}
	if malformed != nil {
		return malformed.answer()
	}
	x, a := s.begin(c, prepare)
	if x == nil {
		return a
	}
	for _, i := range x.struck {
		if !s.wait(c, i) {
			return nil
		}
	}
	return s.finish(x)
}

// arrive lets the faults strike that keep a request from being looked at.
func (s *Server) arrive(c *call) (a *answer, arrived bool) {
	s.mu.Lock()
	struck := s.strike(c, onArrival)
	s.mu.Unlock()
	for _, i := range struck {
		switch i.rule.Fault {
		case HoldArrival:
			if !s.wait(c, i) {
				return nil, false
			}
		case CloseBefore:
			return nil, false
		case RateLimit:
			return rateLimited().answer(), false
		case Unauthorized:
			return unauthorized("Invalid API Key provided: sk_test_***").answer(), false
		case Unavailable:
			return htmlAnswer(http.StatusServiceUnavailable), false
		case KeyInUse:
			return keyInUse(c.key).answer(), false
		}
	}
	return nil, true
}

// begin looks at the key, validates, and takes what the effect needs: from
// here on the key is in flight and the intent is held. Without an execution
// the answer is the response.
func (s *Server) begin(c *call, prepare endpoint) (*execution, *answer) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if c.request.Method != http.MethodPost {
		run, invalid := prepare(c)
		if invalid != nil {
			return nil, invalid.answer()
		}
		return &execution{call: c, run: run, struck: s.strike(c, onExecution)}, nil
	}

	use := keyUse{key: c.key, path: c.request.URL.Path, params: c.form.canonical()}
	if s.compareBytes {
		use.params = string(c.record.Body)
	}
	saved, refused := s.keys.find(use, s.now())
	switch {
	case refused != nil:
		return nil, refused.answer()
	case saved != nil:
		c.record.Replayed = true
		return nil, saved
	}

	run, invalid := prepare(c)
	if invalid == nil && (c.intent != nil && c.intent.busy || len(s.strike(c, onLock)) > 0) {
		invalid = lockTimeout()
	}
	if invalid != nil {
		a := invalid.answer()
		a.original = c.record.ID
		return nil, a
	}
	if c.intent != nil {
		c.intent.busy = true
	}
	return &execution{
		call:   c,
		run:    run,
		entry:  s.keys.begin(use, s.now()),
		struck: s.strike(c, onExecution),
	}, nil
}

// finish runs the effect, or what a fault puts in its place, and saves the
// outcome under the key.
func (s *Server) finish(x *execution) *answer {
	s.mu.Lock()
	defer s.mu.Unlock()

	a := s.outcome(x)
	if x.intent != nil {
		x.intent.busy = false
	}
	if x.entry != nil {
		a.original = x.record.ID
		a.retry = "false"
		x.entry.save(a)
	}
	return a
}

func (s *Server) outcome(x *execution) *answer {
	failed := slices.IndexFunc(x.struck, func(i *Injection) bool { return i.rule.Fault.fails() })
	if failed < 0 {
		return s.execute(x)
	}
	switch i := x.struck[failed]; {
	case i.rule.Fault == ErrorAfter, i.rule.Fault == ErrorLater && i.ended:
		s.execute(x)
	case i.rule.Fault == ErrorLater:
		i.later = append(i.later, func() { s.execute(x) })
	}
	return serverError().answer()
}

func (s *Server) execute(x *execution) *answer {
	x.record.Executed = true
	object, refused := x.run()
	if refused != nil {
		return refused.answer()
	}
	return &answer{status: http.StatusOK, body: encode(object)}
}

// encode renders an object of ours, indented as Stripe's answers are.
func encode(object any) []byte {
	body, err := json.MarshalIndent(object, "", "  ")
	if err != nil {
		panic(err) // strings, integers and maps of them always encode
	}
	return append(body, '\n')
}
