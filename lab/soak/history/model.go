package history

import (
	"slices"

	"github.com/anishathalye/porcupine"
)

// phase is how far a key has moved.
type phase int

const (
	unused phase = iota
	claimed
	final
	expired
)

// state is that of a key.
type state struct {
	phase    phase
	request  string   // that claimed it
	response Response // without a body until a request has seen it
	aged     bool
	durable  phase // that the next failover cannot lose
}

// These are operations of the model only.
const (
	send     Kind = "send"     // a request may claim the key before it is answered
	boundary Kind = "boundary" // the moment from which a failover may lose rows
)

var model = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{state{}} },
	Step: func(from, operation, _ any) []any {
		s, op := from.(state), operation.(Operation)
		if op.Kind == Failover {
			return s.lose()
		}
		if next, legal := s.step(op); legal {
			return []any{next}
		}
		return nil
	},
}).ToModel()

// step returns the state after an operation, and whether it is legal.
func (s state) step(op Operation) (state, bool) {
	switch op.Kind {
	case Age:
		s.aged = true
		return s, true
	case Expire:
		s.phase = expired
		return s, true
	case send:
		return s.claim(op), true
	case boundary:
		s.durable = s.phase
		return s, true
	case Read:
		return s.read(op)
	default:
		return s.post(op)
	}
}

func (s state) post(op Operation) (state, bool) {
	ours := s.request == op.Request && (s.phase == claimed || s.phase == final)
	switch {
	case op.isFinal():
		return s.finish(op.Response, ours)
	case op.Status == 202:
		return s, ours && s.phase == claimed
	case op.Status == 409: // also while the claim of another request is not committed
		return s, s.phase <= claimed
	case op.Response.Type == "/problems/idempotency-key-reused":
		return s, !ours && (s.phase == claimed || s.phase == final)
	case op.Response.Type == "/problems/idempotency-key-expired":
		return s.expire()
	default:
		return s, s.phase == unused
	}
}

func (s state) read(op Operation) (state, bool) {
	switch {
	case op.Status == 404:
		return s, s.phase == unused
	case op.State == "finished":
		return s.finish(op.Response, true)
	case op.State == "expired":
		return s.expire()
	default:
		return s, s.phase == claimed
	}
}

func (s state) claim(op Operation) state {
	if s.phase == unused {
		s.phase, s.request = claimed, op.Request
	}
	return s
}

// finish stores a response, or compares it with the stored one.
func (s state) finish(r Response, legal bool) (state, bool) {
	if s.phase == claimed {
		s.phase, s.response = final, r
	}
	legal = legal && s.phase == final
	known := s.response
	if known.Body == "" || r.Body == "" {
		known.Body = max(known.Body, r.Body)
		r.Body = known.Body
	}
	s.response = known
	return s, legal && known == r
}

func (s state) expire() (state, bool) {
	legal := s.phase == expired || s.phase == final && s.aged
	s.phase = expired
	return s, legal
}

// lose returns the states to which a failover may take the key back.
func (s state) lose() []any {
	states := []any{s}
	for p := s.durable; p < s.phase; p++ {
		past := s
		past.phase = p
		if p < final {
			past.response = Response{}
		}
		if p < claimed {
			past.request = ""
		}
		states = append(states, past)
	}
	return states
}

// unknown reports whether the response does not say what the request has done or will do.
func (op Operation) unknown() bool { return op.Status == 0 || op.Status >= 500 }

func (op Operation) isFinal() bool {
	return op.Status == 201 || slices.Contains([]string{"/problems/payment-declined", "/problems/payment-refused"}, op.Response.Type)
}
