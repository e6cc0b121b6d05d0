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

// commit commits a record with the next recovery point, and in the first step with the claim
// (R1). It returns the row of another request that the claim met.
func (r *execution) commit(ctx context.Context, record RecordFunc) (existing *keyRow, err error) {
	err = retry(func() error {
		err := r.transact(ctx, record)
		if errors.Is(err, errCommitUnknown) && r.claimed {
			err = r.invalidate(ctx, err) // the INSERT of a repeated claim waits for the first one
		}
		switch {
		case errors.Is(err, errClaimConflict), errors.Is(err, ErrLeaseLost):
			existing, err = r.resolve(ctx, err)
		case !r.claimed && postgres.SQLState(err) == postgres.UniqueViolation:
			err = r.violated(ctx, postgres.Constraint(err))
		}
		return err
	})
	return existing, err
}

func (r *execution) transact(ctx context.Context, record RecordFunc) error {
	if record == nil {
		return fmt.Errorf("idempotency: the step from %q has no record", r.point)
	}
	tx := &Tx{run: r}
	defer tx.close(ctx)
	recording, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	next, err := record(recording, tx)
	if err != nil && !r.claimed && !tx.open && tx.failed == nil {
		// An expired key may have charged, so it takes precedence over the rejection (R2).
		if expired := r.engine.store.keyExpired(ctx, r.AccountID, r.KeyID, r.Key); !errors.Is(expired, ErrNotFound) {
			err = expired
		}
	}
	if err != nil {
		return err
	}
	if err := next.check(r.steps); err != nil {
		return err
	}
	return tx.commit(ctx, next)
}

// Tx is the transaction in which a step records its result.
type Tx struct {
	run    *execution
	conn   *pgxpool.Conn
	open   bool  // the claim or the fence has been executed
	failed error // the first error of a statement
	queued pgx.Batch
}

// Queue adds a statement that is sent with COMMIT. An error of its callback does not fail the
// transaction.
func (tx *Tx) Queue(query string, arguments ...any) *pgx.QueuedQuery {
	return tx.queued.Queue(query, arguments...)
}

// commit sends the claim or the fenced UPDATE, the queued statements and COMMIT in one
// round trip. Without an acknowledgement it returns errCommitUnknown (R22).
func (tx *Tx) commit(ctx context.Context, next Transition) error {
	if tx.failed != nil {
		return tx.failed
	}
	r := tx.run
	if !r.claimed && next.point == Finished {
		if err := tx.begin(ctx); err != nil { // the row must exist before it is finished
			return err
		}
	}
	batch, err := tx.batch(ctx)
	if err != nil {
		return err
	}
	leaseStart := new(time.Time)
	switch {
	case !r.claimed && !tx.open:
		queueClaim(batch, r, next.point)
		leaseStart = &r.CreatedAt
	case next.point == Finished:
		queueFinish(batch, r, next.response, leaseStart)
	default:
		queueAsserted(batch, advanceSQL, leaseStart, r.fence(string(next.point))...)
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
	sent := r.clock()
	err = tx.send(ctx, batch)
	switch {
	case postgres.Unreplicated(tx.conn.Conn()):
		r.mayHold = true
		return errNotReplicated
	case committed:
		r.Attempt = max(r.Attempt, 1)
		r.point, r.response = next.point, next.response
		r.setLease(*leaseStart, sent)
		return nil
	case commitMayHaveApplied(tx.conn.Conn(), err):
		r.mayHold = true
		return fmt.Errorf("%w: %w", errCommitUnknown, err)
	default:
		return err
	}
}

// setLease renews the lease, which ends here before it ends in the database, because sent is
// before start (R8).
func (r *execution) setLease(start, sent time.Time) {
	r.claimed, r.mayHold = true, true
	r.leaseStart, r.leaseSent = start, sent
	r.CreatedAt = r.CreatedAt.UTC()
}

func (tx *Tx) batch(ctx context.Context) (*pgx.Batch, error) {
	batch := &pgx.Batch{}
	if tx.open {
		return batch, nil
	}
	var err error
	if tx.conn, err = tx.run.engine.store.acquire(ctx); err != nil {
		return nil, err
	}
	batch.BeginTx(pgx.TxOptions{}) // READ COMMITTED, which postgres.CheckSession requires
	return batch, nil
}

// send ignores the end of ctx, which would only make the outcome of COMMIT unknown (R22).
func (tx *Tx) send(ctx context.Context, batch *pgx.Batch) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseTimeout)
	defer cancel()
	return tx.check(tx.conn.SendBatch(ctx, batch).Close())
}

func (tx *Tx) check(err error) error {
	err = translateOn(tx.conn.Conn(), err)
	if tx.failed == nil {
		tx.failed = err
	}
	return err
}

// QueryRow executes a query now, before the queued statements.
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

// begin opens the transaction. The claim or the fence locks the row.
func (tx *Tx) begin(ctx context.Context) error {
	if tx.open || tx.failed != nil {
		return tx.failed
	}
	batch, err := tx.batch(ctx)
	if err != nil {
		tx.failed = err
		return err
	}
	r := tx.run
	if r.claimed {
		queueAsserted(batch, fenceSQL, new(time.Time), r.fence()...)
	} else {
		queueClaim(batch, r, Started)
	}
	if err := tx.send(ctx, batch); err != nil {
		return err
	}
	tx.open = true
	if !r.claimed {
		r.leaseStart = r.CreatedAt // for the fence of commit
	}
	return nil
}

func (tx *Tx) close(ctx context.Context) {
	if tx.conn == nil {
		return
	}
	if conn := tx.conn.Conn(); !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseTimeout)
		defer cancel()
		if _, err := conn.Exec(ctx, "ROLLBACK"); err != nil {
			tx.run.engine.config.Logger.WarnContext(ctx, "idempotency: rollback failed, connection dropped", "key_id", tx.run.KeyID, "error", err)
		}
	}
	tx.conn.Release()
	tx.conn = nil
}

// invalidate makes an unknown COMMIT fail if it has not arrived yet (R22), by moving the
// start of the lease, which its fence names.
func (r *execution) invalidate(ctx context.Context, doubt error) error {
	var start time.Time
	sent := r.clock()
	err := r.engine.store.queryRow(ctx, advanceSQL, r.fence(string(r.point)), nil, &start)
	switch {
	case err == nil:
		r.setLease(start, sent)
		return fmt.Errorf("%w: %w", errNotCommitted, doubt)
	case errors.Is(err, ErrLeaseLost):
		return err
	default:
		return commitUnknown(err)
	}
}

// resolve reads the row after the claim met one or the fence did not hold (R22). Without an
// error, this run did commit.
func (r *execution) resolve(ctx context.Context, failure error) (existing *keyRow, err error) {
	sent := r.clock()
	stored, err := r.engine.store.find(ctx, r.AccountID, r.KeyID)
	switch {
	case errors.Is(err, ErrNotFound) && r.claimed:
		return nil, failure // a failover lost the row; the next request claims the key again (R5)
	case errors.Is(err, ErrNotFound):
		err = r.engine.store.keyExpired(ctx, r.AccountID, r.KeyID, r.Key)
		if errors.Is(err, ErrNotFound) {
			err = errNotCommitted // the conflicting row is gone again
		}
		return nil, err
	case err != nil && r.mayHold:
		return nil, commitUnknown(err)
	case err != nil:
		return nil, err
	case stored.Token != r.token && !r.claimed:
		return stored, failure
	case stored.Token != r.token, stored.Point != Finished && stored.LockedAt == nil:
		return nil, ErrLeaseLost // taken over, or released by an operator
	}
	r.Attempt, r.CreatedAt = stored.Attempt, stored.CreatedAt
	r.point, r.response = stored.Point, stored.response()
	start := stored.ReadAt
	if stored.LockedAt != nil {
		start = *stored.LockedAt
	}
	r.setLease(start, sent.Add(start.Sub(stored.ReadAt)))
	return nil, nil
}

// commitUnknown does not wrap its cause, which says nothing about the COMMIT.
func commitUnknown(cause error) error {
	return fmt.Errorf("%w: outcome of COMMIT unknown, and the row cannot be read: %s", postgres.ErrUnavailable, cause.Error())
}

func (r *execution) violated(ctx context.Context, constraint string) error {
	if r.steps.Violated != nil {
		if err := r.steps.Violated(ctx, constraint); err != nil {
			return err
		}
	}
	// The key's row is gone, but a derived id exists.
	return &KeyExpiredError{Key: StoredKey{AccountID: r.AccountID, ID: r.KeyID, Key: r.Key, Operation: r.operation, Path: r.request.Path}}
}
