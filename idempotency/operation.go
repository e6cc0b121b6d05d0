package idempotency

import "context"

// Operation is work that executes once per key.
type Operation interface {
	Name() string // stored with the key

	// Steps returns the steps of one run, which may share variables. The engine also calls it
	// with an empty run, to learn the recovery points.
	Steps(run *Run) Steps
}

// Steps are the steps of a run.
type Steps struct {
	// Start commits with the claim, so it makes no external call. It validates the request,
	// because its error leaves the key unused (R19, replay, then validation).
	Start RecordFunc

	// Violated, if set, returns the error for a unique constraint that Start has violated: [Run.Expired] for that of an
	// id which derives from the key, because the key was used and its row is gone. nil means that the constraint is not
	// expected, and the database's error is internal. Citus reports the name only within a message, so on Citus
	// constraint is that message.
	Violated func(ctx context.Context, constraint string) error

	At map[RecoveryPoint]StepFunc // by the recovery point where they begin
}

// StepFunc makes an external call, if it has one, without a connection (R6, nothing held during
// a call). ctx ends with the lease, not with the client's connection (R10, detached work). After an
// error, a later run repeats the call.
type StepFunc func(ctx context.Context) (RecordFunc, error)

// RecordFunc writes the result of a step in a transaction. If that fails, a later run repeats the step.
type RecordFunc func(ctx context.Context, tx *Tx) (Transition, error)

// Transition is the result of a [RecordFunc]: [Advance], [Pause] or [Finish].
type Transition struct {
	point    RecoveryPoint
	response Response
	pause    func() error
}

// Advance moves the request to a recovery point. At its own, the step runs again.
func Advance(point RecoveryPoint) Transition { return Transition{point: point} }

// Pause is [Advance], after which the run ends with the error that reason returns, as with the error of a step. If
// reason returns nil, because the commit has shown that there is more to do, the run goes on.
func Pause(point RecoveryPoint, reason func() error) Transition {
	return Transition{point: point, pause: reason}
}

// Finish stores the response of every retry. It must be final, because a stored failure would
// hide a charge that still happens (R11, final only).
func Finish(response Response) Transition {
	if response.Body == nil {
		response.Body = []byte{}
	}
	return Transition{point: Finished, response: response}
}
