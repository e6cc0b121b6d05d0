package receipts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

// store has every statement on staged_jobs, except the INSERT in [StageTx]. Times
// are the database's, because workers share no other clock. Three statements read
// the jobs of all accounts: those that find and count jobs. A statement that
// changes a job names its account and id (R16, R20).
type store struct {
	pool *pgxpool.Pool
}

const nextDueSQL = `
SELECT now(),
       min(run_at)
  FROM staged_jobs
 WHERE kind = $1
   AND failed_at IS NULL`

// nextDue returns the database's time and the time at which the first pending job
// is due, nil if there is no pending job.
func (s store) nextDue(ctx context.Context) (now time.Time, next *time.Time, err error) {
	if err := s.pool.QueryRow(ctx, nextDueSQL, kind).Scan(&now, &next); err != nil {
		return time.Time{}, nil, fmt.Errorf("receipts: find the next job: %w", err)
	}
	return now, next, nil
}

// candidate is a pending job that was due when it was read.
type candidate struct {
	accountID uuid.UUID
	id        uuid.UUID
	attempt   int
	runAt     time.Time
}

// candidatesSQL begins at the run_at of the previous batch's last job: the index
// keeps the entries of claimed jobs until VACUUM, and without that bound each batch
// would read the entries of all earlier batches.
const candidatesSQL = `
SELECT account_id,
       id,
       attempt,
       run_at
  FROM staged_jobs
 WHERE kind = $1
   AND failed_at IS NULL
   AND run_at >= $2
   AND run_at <= $3
 ORDER BY run_at
 LIMIT $4`

// candidates returns the jobs that are due in the given period, the longest due
// first.
func (s store) candidates(ctx context.Context, from, to time.Time, limit int) ([]candidate, error) {
	rows, err := s.pool.Query(ctx, candidatesSQL, kind, from, to, limit)
	if err != nil {
		return nil, fmt.Errorf("receipts: find due jobs: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c candidate, err error) {
		return c, row.Scan(&c.accountID, &c.id, &c.attempt, &c.runAt)
	})
	if err != nil {
		return nil, fmt.Errorf("receipts: find due jobs: %w", err)
	}
	return list, nil
}

// job is a row of staged_jobs that this worker has claimed.
type job struct {
	accountID uuid.UUID
	id        uuid.UUID
	attempt   int
	orderID   string // as stored in args, not validated
}

// claimSQL counts an attempt and leases the job by moving its run_at ahead. It
// changes nothing if the job is not as it was read. The order id is read as text:
// a malformed one must fail in the worker, which records it, not in the statement.
const claimSQL = `
UPDATE staged_jobs
   SET attempt = attempt + 1,
       run_at  = now() + $4::interval
 WHERE account_id = $1
   AND id = $2
   AND attempt = $3
   AND run_at <= now()
   AND failed_at IS NULL
RETURNING attempt,
          coalesce(args->>'order_id', '')`

// errChanged is the error of a claim whose candidate has changed since it was read,
// mostly because another worker has claimed it.
var errChanged = errors.New("receipts: the job has changed")

// claim leases a job, or returns errChanged. An error that is
// [postgres.ErrLockTimeout] means that another transaction holds the row.
func (s store) claim(ctx context.Context, c candidate, lease time.Duration) (job, error) {
	j := job{accountID: c.accountID, id: c.id}
	err := s.pool.QueryRow(ctx, claimSQL, c.accountID, c.id, c.attempt, lease).Scan(&j.attempt, &j.orderID)
	if errors.Is(err, pgx.ErrNoRows) {
		return job{}, errChanged
	}
	if err != nil {
		return job{}, fmt.Errorf("receipts: claim a job: %w", postgres.Translate(err))
	}
	return j, nil
}

const orderSQL = `
SELECT email,
       currency,
       amount,
       items,
       paid_at
  FROM orders
 WHERE account_id = $1
   AND id = $2`

// order reads the content of a receipt.
func (s store) order(ctx context.Context, accountID, orderID uuid.UUID) (order, error) {
	o := order{id: orderID}
	var paidAt *time.Time
	err := s.pool.QueryRow(ctx, orderSQL, accountID, orderID).Scan(&o.email, &o.currency, &o.amount, &o.items, &paidAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return order{}, fmt.Errorf("%w: no such order", ErrPermanent)
	}
	if err != nil {
		return order{}, fmt.Errorf("receipts: read the order: %w", err)
	}
	if paidAt == nil {
		return order{}, fmt.Errorf("%w: the order is not paid", ErrPermanent)
	}
	o.paidAt = *paidAt
	return o, nil
}

// The three statements that end an attempt. Each names the attempt (the fence), so
// a worker whose lease has expired changes nothing. held reports whether this
// worker still held the lease.

const deleteSQL = `
DELETE FROM staged_jobs
 WHERE account_id = $1
   AND id = $2
   AND attempt = $3
   AND failed_at IS NULL`

func (s store) delete(ctx context.Context, j job) (held bool, err error) {
	tag, err := s.pool.Exec(ctx, deleteSQL, j.accountID, j.id, j.attempt)
	return tag.RowsAffected() == 1, err
}

const retryLaterSQL = `
UPDATE staged_jobs
   SET run_at     = now() + $4::interval,
       last_error = $5
 WHERE account_id = $1
   AND id = $2
   AND attempt = $3
   AND failed_at IS NULL`

func (s store) retryLater(ctx context.Context, j job, delay time.Duration, cause error) (held bool, err error) {
	tag, err := s.pool.Exec(ctx, retryLaterSQL, j.accountID, j.id, j.attempt, delay, errorText(cause))
	return tag.RowsAffected() == 1, err
}

const markFailedSQL = `
UPDATE staged_jobs
   SET failed_at  = now(),
       last_error = $4
 WHERE account_id = $1
   AND id = $2
   AND attempt = $3
   AND failed_at IS NULL`

func (s store) markFailed(ctx context.Context, j job, cause error) (held bool, err error) {
	tag, err := s.pool.Exec(ctx, markFailedSQL, j.accountID, j.id, j.attempt, errorText(cause))
	return tag.RowsAffected() == 1, err
}

// errorText returns what last_error stores: the error and, if the mail server
// replied, its own words.
func errorText(cause error) string {
	const limit = 500 // characters, as the column's CHECK requires
	text := cause.Error()
	var sendErr *SendError
	if errors.As(cause, &sendErr) {
		text += " (" + sendErr.Detail + ")"
	}
	return postgres.Text(text, limit)
}

// statsSQL counts pending and failed jobs with an index each.
const statsSQL = `
SELECT count(*),
       coalesce(now() - min(created_at), interval '0'),
       (SELECT count(*)
          FROM staged_jobs
         WHERE kind = $1
           AND failed_at IS NOT NULL)
  FROM staged_jobs
 WHERE kind = $1
   AND failed_at IS NULL`

// stats counts the jobs of all accounts.
func (s store) stats(ctx context.Context) (Stats, error) {
	var stats Stats
	if err := s.pool.QueryRow(ctx, statsSQL, kind).Scan(&stats.Pending, &stats.Oldest, &stats.Failed); err != nil {
		return Stats{}, fmt.Errorf("receipts: count jobs: %w", err)
	}
	return stats, nil
}
