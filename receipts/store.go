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

// errNothingDue says that there is no job to take.
var errNothingDue = errors.New("receipts: nothing due")

// store holds every statement on staged_jobs but the one that stages. Times are
// the database's: workers on several machines share no other clock. Finding
// jobs and counting them looks across accounts; everything about one job names
// its account (R20).
type store struct {
	pool *pgxpool.Pool
}

// job is a row of staged_jobs while this worker holds its lease.
type job struct {
	accountID uuid.UUID
	id        uuid.UUID
	attempt   int
	orderID   string // as it stands in args, not checked
}

// schedule returns the database's time and the moment when the first living
// job is due; ok is false when there is none.
func (s store) schedule(ctx context.Context) (now, first time.Time, ok bool, err error) {
	var next *time.Time
	err = s.pool.QueryRow(ctx, `
		SELECT
			now(),
			min(run_at)
		FROM staged_jobs
		WHERE kind = $1 AND failed_at IS NULL`,
		kind).Scan(&now, &next)
	if err != nil {
		return now, first, false, fmt.Errorf("receipts: look for jobs: %w", err)
	}
	if next == nil {
		return now, first, false, nil
	}
	return now, *next, true, nil
}

// take leases the job that has been due longest, if it was so at the moment
// given. A row that another worker is just taking is skipped, not waited for
// (R21). The order id is read as text: a malformed one must not fail the
// statement, and every job with it.
func (s store) take(ctx context.Context, due time.Time, lease time.Duration) (job, error) {
	var j job
	err := s.pool.QueryRow(ctx, `
		WITH due AS (
			SELECT account_id, id
			FROM staged_jobs
			WHERE kind = $1 AND failed_at IS NULL AND run_at <= $2
			ORDER BY run_at
			LIMIT 1
			FOR UPDATE SKIP LOCKED
		)
		UPDATE staged_jobs j SET
			attempt = j.attempt + 1,
			run_at  = now() + $3::interval
		FROM due
		WHERE j.account_id = due.account_id AND j.id = due.id
		RETURNING
			j.account_id,
			j.id,
			j.attempt,
			COALESCE(j.args->>'order_id', '')`,
		kind, due, lease).Scan(&j.accountID, &j.id, &j.attempt, &j.orderID)
	if errors.Is(err, pgx.ErrNoRows) {
		return job{}, errNothingDue
	}
	if err != nil {
		return job{}, fmt.Errorf("receipts: take a job: %w", err)
	}
	return j, nil
}

// order reads what the receipt says.
func (s store) order(ctx context.Context, accountID, orderID uuid.UUID) (order, error) {
	o := order{id: orderID}
	var paidAt *time.Time
	err := s.pool.QueryRow(ctx, `
		SELECT
			email,
			currency,
			amount,
			items,
			paid_at
		FROM orders
		WHERE account_id = $1 AND id = $2`,
		accountID, orderID).Scan(&o.email, &o.currency, &o.amount, &o.items, &paidAt)
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

// The three ways a job ends an attempt. Each names the attempt, so that a
// worker whose lease ran out changes nothing; held tells whether it still had it.

func (s store) remove(ctx context.Context, j job) (held bool, err error) {
	tag, err := s.pool.Exec(ctx, `
		DELETE FROM staged_jobs
		WHERE account_id = $1 AND id = $2 AND attempt = $3 AND failed_at IS NULL`,
		j.accountID, j.id, j.attempt)
	return tag.RowsAffected() == 1, err
}

func (s store) retry(ctx context.Context, j job, delay time.Duration, cause error) (held bool, err error) {
	tag, err := s.pool.Exec(ctx, `
		UPDATE staged_jobs SET
			run_at     = now() + $4::interval,
			last_error = $5
		WHERE account_id = $1 AND id = $2 AND attempt = $3 AND failed_at IS NULL`,
		j.accountID, j.id, j.attempt, delay, errorText(cause))
	return tag.RowsAffected() == 1, err
}

func (s store) bury(ctx context.Context, j job, cause error) (held bool, err error) {
	tag, err := s.pool.Exec(ctx, `
		UPDATE staged_jobs SET
			failed_at  = now(),
			last_error = $4
		WHERE account_id = $1 AND id = $2 AND attempt = $3 AND failed_at IS NULL`,
		j.accountID, j.id, j.attempt, errorText(cause))
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

const statsSQL = `
	SELECT
		count(*),
		COALESCE(now() - min(created_at), interval '0'),
		(SELECT count(*) FROM staged_jobs WHERE kind = $1 AND failed_at IS NOT NULL)
	FROM staged_jobs
	WHERE kind = $1 AND failed_at IS NULL`

// stats counts the jobs of all accounts: the living by one index, the dead by
// another.
func (s store) stats(ctx context.Context) (Stats, error) {
	var stats Stats
	err := s.pool.QueryRow(ctx, statsSQL, kind).Scan(&stats.Waiting, &stats.Oldest, &stats.Dead)
	if err != nil {
		return Stats{}, fmt.Errorf("receipts: count jobs: %w", err)
	}
	return stats, nil
}
