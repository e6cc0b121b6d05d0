package idempotency

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

// RecoveryPoint names how far a request has come. Operations add points between the
// two of the engine.
type RecoveryPoint string

const (
	// Started is where every request begins. No stored key is at it (R1).
	Started RecoveryPoint = "started"

	// Finished means that the response is stored.
	Finished RecoveryPoint = "finished"
)

// Operation is work that executes once per key.
type Operation interface {
	// Name is stored with the key. [Engine.Resume] finds the operation by it.
	Name() string

	// Steps returns the steps of one run, which may share variables. The recovery points
	// are the same in all runs. To learn them, the engine also calls Steps with an empty
	// run.
	Steps(run *Run) Steps
}

// knownSteps names the steps of the operations as stepSQL names that of a stored key.
func knownSteps(operations []Operation) (names []string) {
	for _, op := range operations {
		for point := range op.Steps(&Run{}).From {
			names = append(names, fmt.Sprintf("%d/%s/%s", fingerprintVersion, op.Name(), point))
		}
	}
	return names
}

// Steps are the steps of a run, by the recovery point at which each begins.
type Steps struct {
	// Start is the first step. It commits with the claim of the key (R1), so it makes
	// no external call. Its error rejects the request and leaves the key unused, so
	// it is the place to validate (R19).
	//
	// The ids of inserted rows derive from the key, see [DeriveID]. So a unique
	// violation is a [*KeyExpiredError].
	Start Record

	From map[RecoveryPoint]Step
}

// Step makes an external call, if it has one, and returns the record of its result.
// No transaction is open and no connection held (R6). ctx ends with the lease (R8),
// not with the client's connection (R10). A later run may repeat the call. An error
// means that the outcome is unknown: the recovery point stays (R11).
type Step func(ctx context.Context) (Record, error)

// Record writes the result of a step in the engine's transaction. If the transaction
// is repeated, it must write the same.
type Record func(ctx context.Context, tx *Tx) (Outcome, error)

// Outcome is the result of a [Record]: [Advance] or [Finish].
type Outcome struct {
	point    RecoveryPoint
	response Response
}

// Advance moves the request to the next recovery point, or leaves it at its own to
// run the step again.
func Advance(point RecoveryPoint) Outcome { return Outcome{point: point} }

// Finish stores the response that every retry gets (R14). It must be final: no
// unknown outcome (R11), and no failure that may still become a success (R23).
func Finish(response Response) Outcome {
	if response.Headers == nil {
		response.Headers = map[string]string{}
	}
	if response.Body == nil {
		response.Body = []byte{}
	}
	return Outcome{point: Finished, response: response}
}

// check rejects what cannot be stored, or not be replayed unchanged.
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

// Response is stored and replayed byte for byte.
type Response struct {
	Status  int               // 200 to 499
	Headers map[string]string // printable ASCII
	Body    []byte
}

// Request is one use of a key.
type Request struct {
	AccountID uuid.UUID
	Key       Key
	Method    string // part of the fingerprint, like Path and Params (R3)
	Path      string
	Params    []byte // canonical, from Canonicalize

	// OnClaim, if set, is called at most once per call of Do, when the claim or the
	// takeover is committed: the request will be finished, even if this process dies.
	OnClaim func()
}

// Run is one run of an operation under one lease.
type Run struct {
	AccountID uuid.UUID
	Key       Key
	KeyID     uuid.UUID
	Params    []byte // as stored with the key (R4)

	// Resumed means that an earlier run may have made this run's external calls.
	Resumed bool

	// Attempt and CreatedAt are not known yet in Start.
	Attempt   int // 1 on the first run
	CreatedAt time.Time

	since       time.Time     // start of the lease by the database's clock; each commit moves it
	lockTimeout time.Duration // length of the lease

	leasedAt time.Time            // by the database's clock
	elapsed  func() time.Duration // since then, by this process's monotonic clock
}

// Now returns the time by the database's clock, carried forward by the monotonic
// clock of the process. It is not known yet in Start: use now() in SQL.
func (r *Run) Now() time.Time { return r.leasedAt.Add(r.elapsed()).UTC().Truncate(time.Microsecond) }

// LeaseEnd returns the end of the lease by the database's clock (R8), not known yet
// in Start.
func (r *Run) LeaseEnd() time.Time { return r.since.Add(r.lockTimeout) }

// Result is the result of a request.
type Result struct {
	Response Response // the zero value beside an error
	Replayed bool     // stored by an earlier request
	KeyID    uuid.UUID
	Attempt  int           // runs of this key so far; 0 if there is no such key
	From, To RecoveryPoint // where this run began and ended
}
