// Package history records what the clients of the soak saw, and judges it with Porcupine, a
// checker of linearizability.
//
// A history is a file of JSON lines. Most lines are a request with a key or a read of its
// status: when it was sent and answered by one monotonic clock, and fingerprints of the
// request and of its response. The other lines are acts of the soak, such as a failover.
//
// Each key is a register whose state only moves forward:
//
//	unused → claimed → final → expired
//
// A request that was not rejected may claim the key at a moment before its response. If it
// has no response, or a 500 or 503, it may also do so later, or never. The server may finish a
// claimed key at any time, because the completer and webhooks do so, too. A response is legal
// in these states:
//
//	200, 201, 402, a stored 422    claimed by this request, which becomes final, or final with the same bytes
//	202                       claimed by this request
//	409                       unused or claimed, also by this request if another program took its run over
//	another rejection         unused
//	key reused                claimed or final, by another request
//	key expired               expired, or final if the soak has aged the key, which becomes expired
//	429, 500, 503             all
//	read: 404                 unused
//	read: finished            claimed, which becomes final, or final with the same status, type and Location
//	read: expired             as key expired
//	read: another state       claimed
//
// A history is linearizable if each response can be assigned a moment between its request
// and its arrival so that all are legal in the order of the moments. So a response that was
// true once, but not any more when its request began, is a violation.
//
// A failover may lose the rows of a second, and an operator then expires keys. A key that
// only these acts explain is counted and named ([Verdict].Lost): the failover may take it back
// to a state that it had in the time whose rows may be lost, but not to an earlier one. If it takes the
// key of a refund back to unused, the provider's list may record the refund before its client retries.
// The key stays unused then, and each request with it is "key expired" (R27).
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
	lost     bool  // a failover has lost the claim
	recorded bool  // the provider's list has recorded the refund of the lost claim
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
		switch {
		case op.Kind == Failover:
			return s.lose()
		case op.Kind == send && op.Response.Type == notCancelable:
			return []any{s, s.claim(op)}
		case op.Kind == Post && op.Response.Type == notCancelable && s.phase == unused:
			return []any{s}
		}
		next, legal := s.step(op)
		switch {
		case !legal:
			return nil
		case op.Kind == Post && op.Status == 409: // it may have claimed the key itself, and lost its lease
			return []any{next, next.claim(op)}
		default:
			return []any{next}
		}
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

// notCancelable is stored if the order was paid after its cancel claimed the key; otherwise it is a
// rejection.
const notCancelable = "/problems/order-not-cancelable"

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
	case op.Response.Type != "/problems/idempotency-key-expired":
		return s, s.phase == unused
	case op.Refund && s.phase == unused && s.lost:
		s.recorded = true
		return s, true
	default:
		return s.expire()
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
	if s.phase == unused && !s.recorded {
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
	if s.recorded { // after an earlier failover
		again := s
		again.recorded = false
		states = append(states, again)
	}
	for p := s.durable; p < s.phase; p++ {
		past := s
		past.phase = p
		if p < final {
			past.response = Response{}
		}
		if p < claimed {
			past.request, past.lost = "", true
		}
		states = append(states, past)
	}
	return states
}

// unknown reports whether the response does not say what the request has done or will do.
func (op Operation) unknown() bool { return op.Status == 0 || op.Status >= 500 }

func (op Operation) isFinal() bool {
	return op.Status == 200 || op.Status == 201 ||
		slices.Contains([]string{"/problems/payment-declined", "/problems/payment-refused", notCancelable}, op.Response.Type)
}
