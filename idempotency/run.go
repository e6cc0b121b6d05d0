package idempotency

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/internal/postgres"
)

// transactionTries bounds how often one transaction is tried, see
// worthRetrying.
const transactionTries = 3

// execution is one run of an operation as the engine sees it.
type execution struct {
	engine   *Engine
	op       string
	run      *Run
	place    *Place
	steps    Steps
	lease    lease
	leaseEnd time.Time // by this process's clock, never later than by the database's
	from     RecoveryPoint
	point    RecoveryPoint
	response Response
	inDoubt  bool // a COMMIT was sent and not clearly answered, so the row may carry the token
}

// lease is what a run holds a key by: its token and the moment of its last
// commit, by the database's clock. It names one transaction of one run, and so
// tells it from any other (R7).
type lease struct {
	token uuid.UUID
	since time.Time
}

func (e *Engine) newExecution(run *Run, op Operation, from RecoveryPoint, place *Place) *execution {
	x := &execution{engine: e, op: op.Name(), run: run, place: place, from: from, point: from, lease: lease{token: uuid.New()}}
	x.renewed(e.clock())
	x.steps = op.Steps(run)
	return x
}

// leased notes what the database said of the lease when it gave it.
func (x *execution) leased(attempt int, createdAt, since time.Time) {
	x.lease.since = since
	noted := x.engine.clock()
	x.run.Attempt, x.run.CreatedAt, x.run.leasedAt = attempt, createdAt.UTC(), since
	x.run.elapsed = func() time.Duration { return x.engine.clock().Sub(noted) }
}

// renewed notes that a statement sent at that time set locked_at. The lease by
// the database's clock began later, so it ends later too (R8).
func (x *execution) renewed(sent time.Time) { x.leaseEnd = sent.Add(x.engine.lockTimeout) }

// moved notes what was committed, and when.
func (x *execution) moved(outcome Outcome, since time.Time) {
	x.point, x.response, x.lease.since = outcome.point, outcome.response, since
}

// found notes what an earlier try committed, which is not always what the last
// one would have.
func (x *execution) found(stored *storedKey) {
	x.point, x.response = stored.point, stored.response
	if stored.lockedAt != nil {
		x.lease.since = *stored.lockedAt
	}
}

// held names the run in a fenced statement.
func (x *execution) held() []any {
	return []any{x.run.AccountID, x.run.KeyID, x.lease.token, string(x.point), x.lease.since}
}

func (x *execution) result() Result {
	return Result{
		Response: x.response,
		KeyID:    x.run.KeyID,
		Attempt:  x.run.Attempt,
		From:     x.from,
		To:       x.point,
	}
}

// proceed takes steps until the request is finished or a step has no outcome.
// However it ends, a panic included, the lease is given back, and those who wait
// here for the key hear of it. The key is durably this run's by now, which is
// what claimed, if not nil, is told.
func (e *Engine) proceed(ctx context.Context, x *execution, claimed func()) (Result, error) {
	defer e.room.nudge(keyRef{x.run.AccountID, x.run.KeyID}) // behind the release
	cause := errPanicked
	defer func() {
		if cause != nil && !errors.Is(cause, ErrLeaseLost) { // else nothing is ours to give
			e.release(ctx, x, cause)
		}
	}()
	if claimed != nil {
		claimed()
	}
	for x.point != Finished {
		if err := e.step(ctx, x); err != nil {
			cause = err
			return x.result(), err
		}
	}
	cause = nil // finishing let go of the lease
	return x.result(), nil
}

// step makes the foreign call of the current recovery point, if it has one, and
// commits what came of it.
func (e *Engine) step(ctx context.Context, x *execution) error {
	return x.traced(ctx, Span{StepSpan, string(x.point)}, func(ctx context.Context) error { return e.takeStep(ctx, x) })
}

func (e *Engine) takeStep(ctx context.Context, x *execution) error {
	phase := Phase{From: x.point}
	begun := e.clock()
	phase.Err = x.call(ctx)
	called := e.clock()
	if x.steps[x.point].Call != nil {
		phase.Call = called.Sub(begun)
	}
	if phase.Err == nil {
		phase.Err = e.record(ctx, x)
		phase.Record = e.clock().Sub(called)
	}
	x.observe(phase)
	return phase.Err
}

// record commits the outcome of the step, and finds out what became of that.
func (e *Engine) record(ctx context.Context, x *execution) error {
	return retry(func() error {
		err := e.tryRecord(ctx, x)
		if errors.Is(err, errCommitUnknown) {
			err = e.fenceOff(ctx, x, err)
		}
		if errors.Is(err, ErrLeaseLost) {
			// To another run, or to a COMMIT of our own that nobody heard?
			err = e.settle(ctx, x)
		}
		return err
	})
}

// call makes the foreign call, on a context that ends with the lease (R8).
func (x *execution) call(ctx context.Context) error {
	call := x.steps[x.point].Call
	if call == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, x.leaseEnd.Sub(x.engine.clock()))
	defer cancel()
	x.place.StepAside()
	defer x.place.ComeBack()
	return call(ctx)
}

func (e *Engine) tryRecord(ctx context.Context, x *execution) error {
	tx := &Tx{engine: e, x: x}
	defer tx.close(ctx)
	return x.record(ctx, tx)
}

// record commits in one transaction the outcome of the current step and those
// of the steps behind it that make no foreign call.
func (x *execution) record(ctx context.Context, tx *Tx) error {
	return x.traced(ctx, Span{Kind: TransactionSpan}, func(ctx context.Context) error {
		outcome, err := x.collect(ctx, tx)
		if err != nil {
			return err
		}
		return tx.commit(ctx, outcome)
	})
}

func (x *execution) collect(ctx context.Context, tx *Tx) (Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	for point := x.point; ; {
		outcome, err := x.steps[point].Record(ctx, tx)
		if err != nil {
			return Outcome{}, err
		}
		if outcome.point == Finished {
			return outcome, outcome.response.check()
		}
		next, known := x.steps[outcome.point]
		if !known {
			return Outcome{}, fmt.Errorf("idempotency: the step from %q advanced to %q, which has no step", point, outcome.point)
		}
		if next.Call != nil || outcome.point == point {
			return outcome, nil
		}
		point = outcome.point
	}
}

// fenceOff makes sure that a transaction which is in doubt cannot be committed
// any more: it may still be under way (R22). It returns errNotCommitted when that
// is so, and ErrLeaseLost when it was committed, unless by another run.
func (e *Engine) fenceOff(ctx context.Context, x *execution, doubt error) error {
	switch err := e.renew(ctx, x); {
	case err == nil:
		return fmt.Errorf("%w: %w", errNotCommitted, doubt)
	case errors.Is(err, ErrLeaseLost):
		return err
	default:
		return unsettled(err)
	}
}

// settle reads the row of a key that is no longer as this run left it (R22). It
// returns nil when the run's own COMMIT did that, and ErrLeaseLost when the key
// is another's.
func (e *Engine) settle(ctx context.Context, x *execution) error {
	stored, err := e.lookup(ctx, x.run.AccountID, x.run.KeyID)
	switch {
	case errors.Is(err, ErrNotFound):
		return ErrLeaseLost // a failover lost the row; the next request claims it anew (R5)
	case err != nil:
		return unsettled(err)
	case stored.token != x.lease.token:
		return ErrLeaseLost
	case stored.point != Finished && stored.lockedAt == nil:
		return ErrLeaseLost // somebody else gave the key back
	default:
		x.found(stored)
		return nil
	}
}

// unsettled is the error of a run that cannot find out. The cause is not
// wrapped: whatever it is, the answer is "unknown".
func unsettled(cause error) error {
	return fmt.Errorf("%w: outcome of COMMIT unknown, and the row cannot be read: %s", postgres.ErrUnavailable, cause.Error())
}

// retry tries what talks to the database again while that may help: after a
// pause that grows, and that never keeps two racers in step.
func retry(try func() error) error {
	for n := 1; ; n++ {
		err := try()
		if err == nil || n == transactionTries || !worthRetrying(err) {
			return err
		}
		time.Sleep(time.Duration(10+rand.IntN(20)) * time.Millisecond << n) //nolint:gosec // a pause is no secret
	}
}
