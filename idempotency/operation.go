package idempotency

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

// RecoveryPoint names how far a request has come. Operations add names of their
// own between the two that the engine knows.
type RecoveryPoint string

const (
	// Started is where every request begins. No stored key is at this point, because
	// the first step commits together with the claim (R1).
	Started RecoveryPoint = "started"

	// Finished means that the response is stored. No step follows.
	Finished RecoveryPoint = "finished"
)

// Operation is work that executes once per key: a name and its steps.
type Operation interface {
	// Name is stored with the key; [Engine.Resume] finds the operation by it.
	Name() string

	// Steps binds the operation to one run. The engine calls it once per run, so the
	// steps may share what an earlier step of the run has read.
	Steps(run *Run) Steps
}

// Steps are the steps of one run by the recovery point that each starts from.
type Steps struct {
	// Start is the first step. It commits together with the claim of the key (R1),
	// so it makes no external call. Its error rejects the request: the key stays
	// unused. So this is where a request is validated: before the claim of a new key,
	// and never for a known key, whose stored response outlives the rules (R19).
	//
	// The rows that it inserts have ids that derive from the key, see [DeriveID]. So a
	// unique violation means that the key executed before: it is a [*KeyExpiredError].
	Start Record

	From map[RecoveryPoint]Step
}

// Step makes the external call of a step, if it has one, and returns the function
// that records the result. It runs with no transaction open and no connection
// held (R6), on a context that ends with the lease (R8) and not with the client's
// connection (R10). A later run may repeat it, so it must be safe to repeat. An
// error means that there is nothing to record yet: the recovery point stays, the
// lease is released, and the error goes to the caller (R11).
type Step func(ctx context.Context) (Record, error)

// Record writes the result of a step inside the engine's transaction and returns
// where the request goes from here. The engine repeats it if it has to repeat the
// transaction, so a repetition must write the same.
type Record func(ctx context.Context, tx *Tx) (Outcome, error)

// Outcome is the result of a [Record]: either [Advance] or [Finish].
type Outcome struct {
	point    RecoveryPoint
	response Response
}

// Advance moves the request to the next recovery point. A step may advance to
// its own point to record something and run again.
func Advance(point RecoveryPoint) Outcome { return Outcome{point: point} }

// Finish stores the response that every retry gets (R14). Only a final result may
// be stored: neither an unknown outcome (R11) nor a failure that might still
// become a success (R23).
func Finish(response Response) Outcome {
	if response.Headers == nil {
		response.Headers = map[string]string{}
	}
	if response.Body == nil {
		response.Body = []byte{}
	}
	return Outcome{point: Finished, response: response}
}

// check rejects an outcome that cannot be stored, or not be replayed unchanged.
func (o Outcome) check(steps Steps) error {
	if _, known := steps.From[o.point]; o.point != Finished && !known {
		return fmt.Errorf("idempotency: a step advanced to %q, from which there is no step", o.point)
	}
	if s := o.response.Status; o.point == Finished && (s < 200 || s > 499) {
		return fmt.Errorf("idempotency: a response of status %d cannot be stored", s)
	}
	for name, value := range o.response.Headers {
		if strings.ContainsFunc(name+value, func(c rune) bool { return c < ' ' || c > '~' }) {
			return fmt.Errorf("idempotency: header %q is not printable ASCII", name)
		}
	}
	return nil
}

// Response is a response as it is stored and replayed, byte for byte.
type Response struct {
	Status  int               // 200 to 499
	Headers map[string]string // printable ASCII
	Body    []byte
}

// Request is one use of a key.
type Request struct {
	AccountID uuid.UUID
	Key       Key
	Method    string // as in the fingerprint (R3), such as POST
	Path      string
	Params    []byte // canonical, from Canonicalize

	// OnClaim, if set, is called when the key is durably claimed by this request:
	// its first step, or the takeover, is committed. From then on the request will be
	// finished, even if this process dies. Each call of Do calls it at most once; a
	// request that lost its lease and calls Do again may claim the key again.
	OnClaim func()
}

// Run is one run of an operation, under one lease.
type Run struct {
	AccountID uuid.UUID
	Key       Key
	KeyID     uuid.UUID
	Params    []byte // as stored with the key (R4)

	// Resumed means that an earlier run began this request, so its external calls
	// may have been made already.
	Resumed bool

	// Attempt and CreatedAt are known once the key is claimed: not yet in Start.
	Attempt   int // 1 on the first run
	CreatedAt time.Time

	since       time.Time     // start of the lease by the database's clock; each commit moves it
	lockTimeout time.Duration // length of the lease

	leasedAt time.Time            // by the database's clock
	elapsed  func() time.Duration // since then, by this process's monotonic clock
}

// Now returns the time by the database's clock, carried forward by this process's
// monotonic clock, so that processes whose clocks differ write the same times. It
// is not known yet in Start, whose statements use now().
func (r *Run) Now() time.Time { return r.leasedAt.Add(r.elapsed()).UTC().Truncate(time.Microsecond) }

// LeaseEnd returns when the lease ends by the database's clock. The run makes no
// external call after it (R8). It is not known yet in Start.
func (r *Run) LeaseEnd() time.Time { return r.since.Add(r.lockTimeout) }

// Result is the result of a request.
type Result struct {
	Response Response // the zero value beside an error
	Replayed bool     // stored by an earlier request
	KeyID    uuid.UUID
	Attempt  int           // runs of this key so far; 0 if there is no such key
	From, To RecoveryPoint // where this run began and ended
}
