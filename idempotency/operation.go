package idempotency

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

// RecoveryPoint names how far a request has come. Operations add names of
// their own between the two that the engine knows.
type RecoveryPoint string

const (
	// Started is where every request begins. Its step makes no foreign call:
	// it runs in the transaction that claims the key (R1).
	Started RecoveryPoint = "started"

	// Finished says that the response is stored. No step follows.
	Finished RecoveryPoint = "finished"
)

// Operation is work that runs once per key: a name and its steps.
type Operation interface {
	// Name is stored with the key; [Engine.Resume] finds the operation by it.
	Name() string

	// Steps returns the steps of one run by the recovery point they start from,
	// bound to that run. The engine asks once per run, so an operation may keep
	// what it learned in one step for the next. The run's Attempt, CreatedAt and
	// Now are there from the first step on, not yet here.
	Steps(run *Run) Steps
}

// Steps holds a step for each recovery point but [Finished].
type Steps map[RecoveryPoint]Step

// Step is one move of an operation.
type Step struct {
	// Call is the step's foreign call, or nil. It runs with no transaction open
	// and no connection held (R6), on a context that ends with the lease (R8)
	// and not with the client's connection (R10). It may run again in a later
	// run, so it must be safe to repeat. A nil error means that there is an
	// outcome to record, good or bad; an error means that there is none: the
	// recovery point stays, the lease is given back and the error is returned
	// (R11).
	Call func(ctx context.Context) error

	// Record writes the outcome down inside the engine's transaction and says
	// where the request goes from here. It may run again, when the transaction
	// has to be repeated, though only one of them is committed; so it must
	// change nothing but the transaction. It talks to nobody else.
	Record func(ctx context.Context, tx *Tx) (Outcome, error)
}

// Outcome is what a step returns: exactly one of [Advance] and [Finish].
type Outcome struct {
	point    RecoveryPoint
	response Response
}

// Advance moves the request to the next recovery point. A step may advance to
// its own point to record something and run again.
func Advance(point RecoveryPoint) Outcome { return Outcome{point: point} }

// Finish stores the response that every retry gets (R14). Only what can no
// longer change may be stored: not an outcome that is in doubt, which is an
// error of the step's Call (R11), and not a failure that might still turn into a
// success (R23).
func Finish(response Response) Outcome {
	if response.Headers == nil {
		response.Headers = map[string]string{}
	}
	if response.Body == nil {
		response.Body = []byte{}
	}
	return Outcome{point: Finished, response: response}
}

// Response is an answer as it was given and as it is replayed, byte for byte.
type Response struct {
	Status  int               // 200 to 499
	Headers map[string]string // printable ASCII
	Body    []byte
}

// check refuses what the database would, and what it would not give back as it
// was. The engine does not look into a response any further.
func (r Response) check() error {
	if r.Status < 200 || r.Status > 499 {
		return fmt.Errorf("idempotency: a response of status %d cannot be stored", r.Status)
	}
	for name, value := range r.Headers {
		if strings.ContainsFunc(name+value, func(c rune) bool { return c < ' ' || c > '~' }) {
			return fmt.Errorf("idempotency: header %q is not printable ASCII", name)
		}
	}
	return nil
}

// Request is one use of a key.
type Request struct {
	AccountID uuid.UUID
	Key       Key
	Method    string // as in the fingerprint (R3), such as POST
	Path      string
	Params    []byte // canonical, from Canonicalize

	// Validate, when not nil, is asked before a new key is claimed, and its error
	// refuses the request. A known key is answered as ever: a stored answer outlives
	// a change of the rules (R19).
	Validate func() error

	// Wait is how long the request may wait for the answer while another run holds
	// the key, before it is told [ErrInProgress]. If that run gives the key back
	// without an answer, one of those who wait takes over. A wait holds neither a
	// transaction nor a connection (R6).
	Wait time.Duration

	// Claimed, when not nil, is called once when the key is durably this request's:
	// its first step, or the takeover, is committed. From here on the request will
	// be finished by somebody, even if this process dies. It is not called for an
	// answer that is stored already.
	Claimed func()
}

// Run is one run of an operation, under one lease.
type Run struct {
	AccountID uuid.UUID
	Key       Key
	KeyID     uuid.UUID
	Params    []byte // the stored ones (R4)
	Attempt   int    // 1 on the first run, 0 before its claim
	CreatedAt time.Time

	// Resumed says that an earlier run began this request, so that its foreign
	// calls may have been made already.
	Resumed bool

	leasedAt time.Time            // by the database's clock
	elapsed  func() time.Duration // since then, by this process's monotonic clock
}

// Now is the time by the database's clock, carried forward by this process's
// monotonic one: processes whose clocks differ write the same times.
func (r *Run) Now() time.Time { return r.leasedAt.Add(r.elapsed()).UTC().Truncate(time.Microsecond) }

// Result is what became of a request.
type Result struct {
	Response Response // the zero value beside an error
	Replayed bool     // stored by an earlier request
	Waited   bool     // for another run, until there was news or Request.Wait was over
	KeyID    uuid.UUID
	Attempt  int           // runs of this key so far
	From, To RecoveryPoint // where this run began and ended
}
