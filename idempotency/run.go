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

// lease is what a run knows about its lease of the key. A new run has none.
type lease struct {
	token   uuid.UUID
	leased  bool // the claim or takeover was committed
	mayHold bool // it was, or its outcome is unknown, so the run releases the key at its end

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
	err = run.transact(ctx, record)
	if !run.leased && postgres.SQLState(err) == postgres.UniqueViolation && run.steps.Violated != nil {
		return cmp.Or(run.steps.Violated(ctx, postgres.Constraint(err)), err)
	}
	if err != nil || run.pause == nil {
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

// transact records the result of the step in a transaction, and commits it with the next recovery point, and in the
// first step with the claim.
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

// moveTo commits what the step has recorded, with one more statement: the claim in the first step, unless the step has
// read something, because then the claim is already in the open transaction (queueLock); otherwise the fenced UPDATE.
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

// Expired returns the error of a key that was used, although its own row was lost: the row of what it created, whose id
// derives from the key, is still there (R17, used for ever).
func (run *Run) Expired() error {
	return &KeyExpiredError{Key: StoredKey{
		AccountID: run.AccountID, ID: run.KeyID, Key: run.Key, Operation: run.operation, Path: run.Path, Expired: true,
	}}
}

// The statements of a run claim a key, and take, prove, renew and end its lease.

// claimSQL is the claim (R1, claim by insert). It names no constraint: the second of two claims
// may meet either unique index, and an expired key only has its id (R17, used for ever). On conflict
// it raises claim_conflict, because the COMMIT queued behind it must not execute. Here and below, OR
// avoids the call of a function that would only return true.
const claimSQL = `
WITH claimed AS (
    INSERT INTO idempotency_keys (
        id, account_id, idempotency_key, operation, request_method, request_path, request_params, fingerprint,
        recovery_point, lease_token, runs, locked_at, updated_at, created_at
    ) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 1, now(), now(), now())
    ON CONFLICT DO NOTHING
    RETURNING locked_at
)
SELECT count(*) = 1 OR idempotency_assert(count(*) = 1, 'claim_conflict'), max(locked_at) FROM claimed`

func (run *Run) queueClaim(batch *pgx.Batch, point RecoveryPoint, leaseStart *time.Time) {
	batch.Queue(claimSQL, run.KeyID, run.AccountID, string(run.Key), run.operation,
		run.request.Method, run.Path, run.Params, fingerprint(run.request), string(point), run.token,
	).QueryRow(func(row pgx.Row) error {
		err := row.Scan(nil, leaseStart)
		run.CreatedAt = *leaseStart // now() is both
		return err
	})
}

// queueAsserted queues a statement that returns the start of the lease.
func queueAsserted(batch *pgx.Batch, query string, leaseStart *time.Time, arguments ...any) {
	batch.Queue(query, arguments...).QueryRow(func(row pgx.Row) error { return row.Scan(nil, leaseStart) })
}

// takeOver leases the key, or returns ErrInProgress if the row has changed (R1, claim by insert). A locked_at that is
// more than a lease in the future comes from a wrong clock, and counts as the beginning of an expired lease (R8, the
// database's clock).
func (run *Run) takeOver(ctx context.Context) error {
	var start time.Time
	sent := run.clock()
	err := run.engine.store.queryRow(ctx, `
UPDATE idempotency_keys
   SET lease_token        = $3,
       runs               = runs + 1,
       locked_at          = now(),
       updated_at         = now(),
       action_required_at = NULL
 WHERE account_id = $1 AND id = $2
   AND recovery_point = $4
   AND (locked_at IS NULL OR locked_at NOT BETWEEN now() - $5::interval AND now() + $5::interval)
RETURNING runs, created_at, locked_at`,
		[]any{run.AccountID, run.KeyID, run.token, string(run.point), run.engine.config.LeaseDuration}, &run.Runs, &run.CreatedAt, &start)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return ErrInProgress // another run was faster
	case err == nil:
		run.setLease(start, sent)
	case !errors.Is(err, ErrInProgress):
		run.mayHold = true // the takeover may be committed
		run.release(ctx, err)
	}
	return err
}

// whereHeld is the fence (R7, fence). A released key has no locked_at, so a COMMIT that arrives after its run has
// ended fails (R22, three outcomes of COMMIT).
const whereHeld = `
     WHERE account_id = $1 AND id = $2
       AND lease_token = $3
       AND recovery_point = $4
       AND locked_at IS NOT NULL`

const assertHeld = `
SELECT count(*) = 1 OR idempotency_assert(count(*) = 1, 'lease_lost'), max(locked_at) FROM held`

// fence returns the arguments of a statement with whereHeld.
func (run *Run) fence(more ...any) []any {
	return append([]any{run.AccountID, run.KeyID, run.token, string(run.point)}, more...)
}

const fenceSQL = `
WITH held AS (
    SELECT locked_at
      FROM idempotency_keys` + whereHeld + `
       FOR NO KEY UPDATE
)` + assertHeld

// queueLock locks the key's row for a transaction that reads before it writes.
func (run *Run) queueLock(batch *pgx.Batch) {
	if run.leased {
		queueAsserted(batch, fenceSQL, new(time.Time), run.fence()...)
	} else {
		run.queueClaim(batch, Started, new(time.Time))
	}
}

// markSQL locks a key at a recovery point, whether or not a run holds it.
const markSQL = `
WITH held AS (
    SELECT locked_at FROM idempotency_keys WHERE account_id = $1 AND id = $2 AND recovery_point = $3 FOR NO KEY UPDATE
)` + assertHeld

// advanceSQL renews the lease from its own time; now() is the beginning of the transaction.
const advanceSQL = `
WITH held AS (
    UPDATE idempotency_keys
       SET recovery_point = $5,
           locked_at      = statement_timestamp(),
           last_error     = NULL` + whereHeld + `
    RETURNING locked_at
)` + assertHeld

// finishSQL returns the time of the end in the column that assertHeld reads, because the lease ends.
const finishSQL = `
WITH held AS (
    UPDATE idempotency_keys
       SET recovery_point   = 'finished',
           locked_at        = NULL,
           last_error       = NULL,
           finished_at      = now(),
           response_code    = $5,
           response_headers = $6,
           response_body    = $7` + whereHeld + `
    RETURNING finished_at AS locked_at
)` + assertHeld

const releaseTimeout = 3 * time.Second // short, because the response waits, and longer than lock_timeout

// release ends the lease early and keeps the recovery point (R11, final only). It waits for a COMMIT that the
// server is executing, and makes one that has not arrived yet fail (R22, three outcomes of COMMIT).
func (run *Run) release(ctx context.Context, cause error) {
	if !run.mayHold || errors.Is(cause, ErrLeaseLost) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	_, err := run.engine.store.exec(ctx, `
UPDATE idempotency_keys
   SET locked_at          = NULL,
       last_error         = $4,
       action_required_at = now() + $5::interval
 WHERE account_id = $1 AND id = $2
   AND lease_token = $3
   AND recovery_point <> 'finished'`,
		run.AccountID, run.KeyID, run.token, postgres.CleanText(cause.Error(), 500), postgres.NowIf(errors.Is(cause, ErrActionRequired)))
	if err != nil {
		run.engine.config.Logger.WarnContext(ctx, "idempotency: lease not released, it will expire", "key_id", run.KeyID, "error", err)
	}
}

// setLease stores when the database began the lease, and when we sent the statement that did so. We
// count the lease from the sending, so for us it ends before it ends in the database (R8, the
// database's clock).
func (run *Run) setLease(start, sent time.Time) {
	run.leased, run.mayHold = true, true
	run.leaseStart, run.leaseSent = start, sent
	run.CreatedAt = run.CreatedAt.UTC()
}

// Now returns the database's time, at most a round trip too late. Start uses now() in SQL.
func (run *Run) Now() time.Time {
	return run.leaseStart.Add(run.clock().Sub(run.leaseSent)).UTC().Truncate(time.Microsecond)
}

// LeaseEnd returns the end of the lease by the database's clock.
func (run *Run) LeaseEnd() time.Time { return run.leaseStart.Add(run.engine.config.LeaseDuration) }
