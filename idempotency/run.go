package idempotency

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/internal/postgres"
)

// Run is one run of an operation under one lease.
type Run struct {
	AccountID uuid.UUID
	Key       Key
	KeyID     uuid.UUID
	Path      string // of the request
	Params    []byte // canonical, as they are stored

	// Resumed means that the steps must read what is stored: an earlier run may have made this run's external calls.
	Resumed bool

	Runs      int // of the key, with this one; like CreatedAt, it is not known yet in Start
	CreatedAt time.Time

	engine    *Engine
	operation string
	steps     Steps

	request *Request // unless the key is resumed

	from, point RecoveryPoint
	response    Response
	pause       func() error // see [Pause]

	lease
}

// lease is what a run knows about its lease of the key. A new run has none. A claim or takeover whose outcome is
// unknown sets mayHold, so that the run releases the key at its end, in case it was committed. One that is committed
// sets both flags.
type lease struct {
	token   uuid.UUID
	mayHold bool
	leased  bool

	// leaseStart is the row's locked_at. leaseSent is the time of our clock just before we sent the
	// statement that has set it.
	leaseStart, leaseSent time.Time
}

func (run *Run) clock() time.Time { return run.engine.config.Clock() }

// execute runs steps until the request is finished or one fails, which releases the lease.
func (run *Run) execute(ctx context.Context) error {
	defer func() {
		if cause := recover(); cause != nil {
			run.release(ctx, errPanicked)
			panic(cause)
		}
	}()
	for {
		if run.leased && run.request != nil && run.request.OnClaim != nil {
			run.request.OnClaim()
			run.request.OnClaim = nil
		}
		if run.point == Finished {
			return nil
		}
		if err := run.step(ctx); err != nil {
			run.release(ctx, err)
			if errors.Is(err, errCommitUnknown) {
				err = run.resolve(ctx, err)
			}
			return err
		}
	}
}

// step makes a call, unless it is the step that claims the key, and commits its result.
func (run *Run) step(ctx context.Context) (err error) {
	record := run.steps.Start
	if run.leased {
		if record, err = run.call(ctx); err != nil {
			return err
		}
	}
	if err = run.commit(ctx, record); err != nil || run.pause == nil {
		return err
	}
	return run.pause()
}

// call makes the step's call, which ends with the lease (R8, the database's clock). It compares the
// wall clock too, because the monotonic clock stops while a machine is suspended.
func (run *Run) call(ctx context.Context) (RecordFunc, error) {
	now, end := run.clock(), run.leaseSent.Add(run.engine.config.LeaseDuration)
	ctx, cancel := context.WithTimeout(ctx, min(end.Sub(now), end.Round(0).Sub(now.Round(0))))
	defer cancel()
	return run.steps.At[run.point](ctx)
}

// commit commits a record with the next recovery point, and in the first step with the claim.
func (run *Run) commit(ctx context.Context, record RecordFunc) error {
	err := run.transact(ctx, record)
	if !run.leased && postgres.SQLState(err) == postgres.UniqueViolation && run.steps.Violated != nil {
		return cmp.Or(run.steps.Violated(ctx, postgres.Constraint(err)), err)
	}
	return err
}

// transact records the result of the step, and commits it.
func (run *Run) transact(ctx context.Context, record RecordFunc) error {
	if record == nil {
		return fmt.Errorf("idempotency: the step from %q has no record", run.point)
	}
	tx := &Tx{store: run.engine.store, lock: run.queueLock}
	defer tx.close(ctx)
	recording, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	next, err := record(recording, tx)
	run.pause = next.pause
	if _, known := run.steps.At[next.point]; err == nil && next.point != Finished && !known {
		err = fmt.Errorf("idempotency: a step advanced to %q, from which there is no step", next.point)
	}
	if err == nil && !run.leased && next.point == Finished {
		err = tx.begin(ctx) // the row must exist before it is finished
	}
	if err != nil {
		return err
	}
	return run.moveTo(ctx, tx, next)
}

// moveTo commits the claim or the fenced UPDATE with what the step has recorded.
func (run *Run) moveTo(ctx context.Context, tx *Tx, next Transition) error {
	var start, sent time.Time
	err := tx.commit(ctx, func(batch *pgx.Batch) {
		sent = run.clock()
		switch {
		case !run.leased && !tx.open:
			run.queueClaim(batch, next.point, &start)
		case next.point == Finished:
			headers, _ := json.Marshal(next.response.Headers) // cannot fail; pgx encodes no map in QueryExecModeExec
			queueAsserted(batch, finishSQL, &start, run.fence(next.response.Status, string(headers), next.response.Body)...)
		default:
			queueAsserted(batch, advanceSQL, &start, run.fence(string(next.point))...)
		}
	})
	switch {
	case err == nil:
		run.Runs = max(run.Runs, 1)
		run.point, run.response = next.point, next.response
		run.setLease(start, sent)
	case errors.Is(err, errCommitUnknown), errors.Is(err, errNotReplicated):
		run.mayHold = true
	}
	return err
}

// resolve returns nil if the COMMIT whose outcome was unknown has stored the response (R22, three outcomes of COMMIT).
// Otherwise the next run continues at the row's recovery point.
func (run *Run) resolve(ctx context.Context, doubt error) error {
	stored, err := run.engine.store.find(ctx, run.AccountID, run.KeyID)
	if err != nil || stored.Token != run.token || stored.Point != Finished {
		return doubt
	}
	run.Runs, run.point, run.response = stored.Runs, Finished, stored.response()
	return nil
}

// Expired returns the error of a key whose row was lost, although a row with an id that derives from the
// key exists, so the key was used (R17, used for ever).
func (run *Run) Expired() error {
	return &KeyExpiredError{Key: StoredKey{
		AccountID: run.AccountID, ID: run.KeyID, Key: run.Key, Operation: run.operation, Path: run.Path, Expired: true,
	}}
}
