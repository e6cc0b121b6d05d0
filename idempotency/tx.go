package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

// commitStep commits a record with the next recovery point, and with the claim in the
// first step (R1). It resolves an unknown COMMIT by reading the row (R22).
func (r *run) commitStep(ctx context.Context, record Record) error {
	return retry(func() error {
		err := r.commit(ctx, record)
		if errors.Is(err, errCommitUnknown) && r.claim == nil {
			err = r.invalidate(ctx, err) // a repeated claim needs no renewal: its INSERT waits for the first one
		}
		if errors.Is(err, ErrLeaseLost) {
			err = r.resolveCommit(ctx)
		}
		if r.claim != nil && postgres.SQLState(err) == postgres.UniqueViolation {
			// The key's row is gone, but a derived id exists (R5).
			err = &KeyExpiredError{Status{AccountID: r.AccountID, ID: r.KeyID, Key: r.Key, Operation: r.operation, Path: r.claim.Path}}
		}
		return err
	})
}

func (r *run) commit(ctx context.Context, record Record) error {
	if record == nil {
		return fmt.Errorf("idempotency: the step from %q has no record", r.point)
	}
	tx := &Tx{run: r}
	defer tx.close(ctx)
	recording, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	outcome, err := record(recording, tx)
	if err != nil && r.claim != nil && !tx.open && tx.failed == nil {
		err = r.rejected(ctx, err)
	}
	if err != nil {
		return err
	}
	if err := outcome.check(r.steps); err != nil {
		return err
	}
	return tx.commit(ctx, outcome)
}

// rejected returns the error of a first step that rejects the request before the claim,
// which would find an expired key. That key may have charged, so it takes precedence (R2).
func (r *run) rejected(ctx context.Context, cause error) error {
	err := r.engine.store.keyExpired(ctx, r.AccountID, r.KeyID, r.Key)
	if errors.Is(err, ErrNotFound) {
		return cause
	}
	return err
}

// invalidate makes an unknown COMMIT fail if it has not arrived yet, by moving the
// start of the lease, which its fence names. It returns errNotCommitted, or
// ErrLeaseLost if the row has changed.
func (r *run) invalidate(ctx context.Context, doubt error) error {
	since, err := r.engine.store.renew(ctx, r.fence())
	switch {
	case err == nil:
		r.since = since
		return fmt.Errorf("%w: %w", errNotCommitted, doubt)
	case errors.Is(err, ErrLeaseLost):
		return err
	default:
		return commitUnknown(err)
	}
}

// resolveCommit reads the row after a fence or a claim failed. It returns nil if this
// run did commit, and ErrLeaseLost if another run holds the key.
func (r *run) resolveCommit(ctx context.Context) error {
	stored, err := r.engine.store.find(ctx, r.AccountID, r.KeyID)
	switch {
	case errors.Is(err, ErrNotFound) && r.claim != nil:
		err = r.engine.store.keyExpired(ctx, r.AccountID, r.KeyID, r.Key)
		if errors.Is(err, ErrNotFound) {
			err = errNotCommitted // the conflicting row is gone again
		}
		return err
	case errors.Is(err, ErrNotFound):
		return ErrLeaseLost // a failover lost the row; the next request claims the key again (R5)
	case err != nil && !r.mayHold:
		return err
	case err != nil:
		return commitUnknown(err)
	case stored.token != r.token && r.claim != nil:
		r.existing = stored
		return ErrLeaseLost
	case stored.token != r.token, stored.Point != Finished && stored.lockedAt == nil:
		return ErrLeaseLost // taken over, or released by an operator
	}
	if r.claim != nil {
		r.setLease(stored.Attempt, stored.CreatedAt, stored.readAt)
	}
	r.point, r.response = stored.Point, stored.response
	if stored.lockedAt != nil {
		r.since = *stored.lockedAt
	}
	return nil
}

// commitUnknown does not wrap its cause, which says nothing about the COMMIT.
func commitUnknown(cause error) error {
	return fmt.Errorf("%w: outcome of COMMIT unknown, and the row cannot be read: %s", postgres.ErrUnavailable, cause.Error())
}

// Tx is the transaction in which a step records its result. The engine begins, fences
// and commits it. A failed statement makes it fail.
type Tx struct {
	run     *run
	conn    *pgxpool.Conn // nil until the first statement
	open    bool          // BEGIN and the claim or the fence have been executed
	claimed time.Time     // when begin inserted the claim
	failed  error         // the first error of a statement
	queued  pgx.Batch
}

// Queue adds a statement that is sent with COMMIT, so a step that only writes costs
// one round trip. A failed statement fails the transaction. An error of its callback
// does not: to read a result before COMMIT, use QueryRow.
func (tx *Tx) Queue(query string, arguments ...any) *pgx.QueuedQuery {
	return tx.queued.Queue(query, arguments...)
}

// QueryRow executes a query now, before all queued statements, and scans its row into
// dest.
func (tx *Tx) QueryRow(ctx context.Context, query string, arguments []any, dest ...any) error {
	if err := tx.begin(ctx); err != nil {
		return err
	}
	err := tx.conn.QueryRow(ctx, query, arguments...).Scan(dest...)
	if errors.Is(err, pgx.ErrNoRows) {
		return err // a result, not a failure
	}
	return tx.check(err)
}

// check translates the error of a statement and keeps the first one.
func (tx *Tx) check(err error) error {
	err = translateOn(tx.conn.Conn(), err)
	if tx.failed == nil {
		tx.failed = err
	}
	return err
}

// begin opens the transaction before COMMIT. The claim or the fence locks the row.
func (tx *Tx) begin(ctx context.Context) error {
	if tx.open || tx.failed != nil {
		return tx.failed
	}
	batch, err := tx.batch(ctx)
	if err != nil {
		tx.failed = err
		return err
	}
	if r := tx.run; r.claim != nil {
		queueClaim(batch, r, Started, &tx.claimed)
	} else {
		queueFenced(batch, fenceSQL, new(time.Time), r.fence().arguments()...)
	}
	if err := tx.send(ctx, batch); err != nil {
		return err
	}
	tx.open = true
	if tx.run.claim != nil {
		tx.run.since = tx.claimed
	}
	return nil
}

// commit sends the claim or the fenced UPDATE, the queued statements and COMMIT in
// one round trip. It returns errCommitUnknown if no acknowledgement arrived (R22).
func (tx *Tx) commit(ctx context.Context, outcome Outcome) error {
	if tx.failed != nil {
		return tx.failed
	}
	r := tx.run
	if r.claim != nil && outcome.point == Finished {
		if err := tx.begin(ctx); err != nil { // the row must exist before it is finished
			return err
		}
	}
	batch, err := tx.batch(ctx)
	if err != nil {
		return err
	}
	var since time.Time
	switch {
	case r.claim != nil && !tx.open:
		queueClaim(batch, r, outcome.point, &since)
	case outcome.point == Finished:
		queueFinish(batch, r.fence(), outcome.response, &since)
	default:
		queueFenced(batch, advanceSQL, &since, r.fence().arguments(string(outcome.point))...)
	}
	batch.QueuedQueries = append(batch.QueuedQueries, tx.queued.QueuedQueries...)
	var committed bool
	batch.Queue("COMMIT").Exec(func(tag pgconn.CommandTag) error {
		if tag.String() != "COMMIT" {
			return errNotCommitted // a failed transaction returns ROLLBACK
		}
		committed = true
		return nil
	})

	postgres.ClearUnreplicated(tx.conn.Conn())
	held := r.mayHold
	r.mayHold = true
	sent := r.engine.clock()
	err = tx.send(ctx, batch)
	switch {
	case postgres.Unreplicated(tx.conn.Conn()):
		return errNotReplicated
	case committed: // whatever happened to the connection afterwards
		tx.committed(outcome, sent, since)
		return nil
	case commitMayHaveApplied(tx.conn.Conn(), err):
		return fmt.Errorf("%w: %w", errCommitUnknown, err)
	default:
		r.mayHold = held
		return err
	}
}

func (tx *Tx) committed(outcome Outcome, sent, since time.Time) {
	r := tx.run
	r.point, r.response = outcome.point, outcome.response
	r.extendLease(sent)
	if r.claim == nil {
		r.since = since
		return
	}
	if !tx.open {
		tx.claimed = since
	}
	r.setLease(1, tx.claimed, since)
}

func (tx *Tx) batch(ctx context.Context) (*pgx.Batch, error) {
	batch := &pgx.Batch{}
	if tx.open {
		return batch, nil
	}
	conn, err := tx.run.engine.store.acquire(ctx)
	if err != nil {
		return nil, err
	}
	tx.conn = conn
	batch.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	return batch, nil
}

// send ignores the end of the step's context, which would only make the outcome of
// COMMIT unknown (R22).
func (tx *Tx) send(ctx context.Context, batch *pgx.Batch) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseTimeout)
	defer cancel()
	return tx.check(tx.conn.SendBatch(ctx, batch).Close())
}

// close rolls back an open transaction. If that fails, the pool closes the connection.
func (tx *Tx) close(ctx context.Context) {
	if tx.conn == nil {
		return
	}
	if conn := tx.conn.Conn(); !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseTimeout)
		defer cancel()
		if _, err := conn.Exec(ctx, "ROLLBACK"); err != nil {
			tx.run.engine.logger.WarnContext(ctx, "idempotency: rollback failed, connection dropped", "key_id", tx.run.KeyID, "error", err)
		}
	}
	tx.conn.Release()
	tx.conn = nil
}
