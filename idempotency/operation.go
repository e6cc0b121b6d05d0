package idempotency

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

// RecoveryPoint names how far a request has come.
type RecoveryPoint string

// The recovery points of the engine.
const (
	Started  RecoveryPoint = "started" // no stored key is at it (R1)
	Finished RecoveryPoint = "finished"
)

// Operation is work that executes once per key.
type Operation interface {
	Name() string // stored with the key

	// Steps returns the steps of one run, which may share variables, or of an empty run, for
	// the recovery points.
	Steps(run *Run) Steps
}

// knownSteps names the steps of the operations as stepSQL does.
func knownSteps(operations []Operation) (names []string) {
	for _, op := range operations {
		for point := range op.Steps(&Run{}).At {
			names = append(names, fmt.Sprintf("%d/%s/%s", fingerprintVersion, op.Name(), point))
		}
	}
	return names
}

// Steps are the steps of a run.
type Steps struct {
	// Start commits with the claim (R1), so it makes no external call. It validates, because
	// its error leaves the key unused (R19). A unique violation is a [*KeyExpiredError], as
	// of an id that derives from the key, unless Violated returns an error.
	Start RecordFunc

	// Violated, if set, returns the error of a unique constraint that does not derive from
	// the key, otherwise nil. On Citus, constraint is a text that contains the name.
	Violated func(ctx context.Context, constraint string) error

	At map[RecoveryPoint]StepFunc // by where they begin
}

// StepFunc makes an external call, if it has one, without a connection (R6). ctx ends with the
// lease (R8), not with the client's connection (R10). After an error, a later run repeats the
// call (R11).
type StepFunc func(ctx context.Context) (RecordFunc, error)

// RecordFunc writes the result of a step in a transaction, which may be repeated.
type RecordFunc func(ctx context.Context, tx *Tx) (Transition, error)

// Transition is the result of a [RecordFunc]: [Advance] or [Finish].
type Transition struct {
	point    RecoveryPoint
	response Response
}

// Advance moves the request to a recovery point. At its own, the step runs again.
func Advance(point RecoveryPoint) Transition { return Transition{point: point} }

// Finish stores the response of every retry. It must be final (R11, R23).
func Finish(response Response) Transition {
	if response.Headers == nil {
		response.Headers = map[string]string{}
	}
	if response.Body == nil {
		response.Body = []byte{}
	}
	return Transition{point: Finished, response: response}
}

// check rejects what cannot be replayed unchanged.
func (t Transition) check(steps Steps) error {
	if _, known := steps.At[t.point]; t.point != Finished && !known {
		return fmt.Errorf("idempotency: a step advanced to %q, from which there is no step", t.point)
	}
	if s := t.response.Status; t.point == Finished && (s < 200 || s > 499) {
		return fmt.Errorf("idempotency: a response of status %d cannot be stored", s)
	}
	for name, value := range t.response.Headers {
		if strings.ContainsFunc(name+value, func(c rune) bool { return c < ' ' || c > '~' }) {
			return fmt.Errorf("idempotency: header %q is not printable ASCII", name)
		}
	}
	return nil
}

// Response is replayed byte for byte (R14).
type Response struct {
	Status  int               // 200 to 499
	Headers map[string]string // printable ASCII
	Body    []byte
}

// Request is one use of a key.
type Request struct {
	AccountID uuid.UUID
	Key       Key
	Method    string // part of the fingerprint (R3), like Path and Params
	Path      string
	Params    []byte // canonical, from Canonicalize

	// OnClaim, if set, is called when the claim or takeover is committed.
	OnClaim func()
}

// Run is one run of an operation under one lease.
type Run struct {
	AccountID uuid.UUID
	Key       Key
	KeyID     uuid.UUID
	Path      string // of the request
	Params    []byte // as stored (R4)

	Resumed bool // an earlier run may have made this run's external calls

	Attempt   int // from 1; not known yet in Start, as CreatedAt
	CreatedAt time.Time

	// The start of the lease, which each commit moves: by the database's clock, and an
	// earlier time of this process (R8).
	leaseStart, leaseSent time.Time

	lockTimeout time.Duration
	clock       func() time.Time
}

// Now returns the database's time, at most a round trip too late. Start uses now() in SQL.
func (r *Run) Now() time.Time {
	return r.leaseStart.Add(r.clock().Sub(r.leaseSent)).UTC().Truncate(time.Microsecond)
}

// LeaseEnd returns the end of the lease by the database's clock (R8).
func (r *Run) LeaseEnd() time.Time { return r.leaseStart.Add(r.lockTimeout) }

// Result is the result of a request.
type Result struct {
	Response Response
	Replayed bool // the response was stored by an earlier request
	KeyID    uuid.UUID
	Attempt  int           // runs so far, 0 without a key
	From, To RecoveryPoint // where this run began and ended
}

// StepHook is called before each step, which runs on the returned context, and its function
// after the step.
type StepHook func(ctx context.Context, step StepStart) (context.Context, func(StepEnd))

// StepStart identifies a step.
type StepStart struct {
	Operation string
	KeyID     uuid.UUID
	Attempt   int // 0 for the step that claims the key
	From      RecoveryPoint
}

// StepEnd is the result of a step. What did not run has the duration 0.
type StepEnd struct {
	To           RecoveryPoint
	Call, Commit time.Duration
	Err          error
}
