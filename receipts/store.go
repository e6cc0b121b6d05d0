package receipts

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

// The worker's statements. A change names account and id (R16, R20).

type job struct {
	AccountID uuid.UUID
	ID        uuid.UUID
	Attempt   int
	orderID   string // known once the job is claimed
}

func (w *Worker) due(ctx context.Context, until time.Time) ([]job, error) {
	return postgres.Collect(ctx, w.pool, "receipts: find due jobs", pgx.RowToStructByPos[job], `
SELECT account_id,
       id,
       attempt
  FROM staged_jobs
 WHERE kind = $1
   AND failed_at IS NULL
   AND run_at <= $2
 ORDER BY run_at
 LIMIT $3`, kind, until, batchSize)
}

// claim does not wait for a locked row (R16).
func (w *Worker) claim(ctx context.Context, j *job, lease time.Duration) (claimed bool, err error) {
	err = postgres.Translate(w.pool.QueryRow(ctx, `
UPDATE staged_jobs
   SET attempt = attempt + 1,
       run_at  = now() + $4::interval
 WHERE account_id = $1
   AND id = $2
   AND attempt = $3
   AND run_at <= now()
   AND failed_at IS NULL
RETURNING attempt,
          coalesce(args->>'order_id', '')`, j.AccountID, j.ID, j.Attempt, lease).Scan(&j.Attempt, &j.orderID))
	switch {
	case errors.Is(err, pgx.ErrNoRows), errors.Is(err, postgres.ErrLockTimeout):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("receipts: claim a job: %w", err)
	}
	return true, nil
}

func (w *Worker) order(ctx context.Context, accountID, id uuid.UUID) (order, error) {
	o := order{ID: id}
	err := w.pool.QueryRow(ctx, `
SELECT email,
       currency,
       amount,
       items,
       paid_at
  FROM orders
 WHERE account_id = $1
   AND id = $2
   AND paid_at IS NOT NULL`, accountID, id).Scan(&o.Email, &o.Currency, &o.Amount, &o.Items, &o.PaidAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return order{}, fmt.Errorf("%w: no such paid order", ErrPermanent)
	}
	if err != nil {
		return order{}, fmt.Errorf("receipts: read the order: %w", err)
	}
	return o, nil
}

// A statement that ends an attempt names it, so a worker with an expired lease changes nothing.

func (w *Worker) delete(ctx context.Context, j job) (held bool, err error) {
	tag, err := w.pool.Exec(ctx, `
DELETE FROM staged_jobs
 WHERE account_id = $1
   AND id = $2
   AND attempt = $3
   AND failed_at IS NULL`, j.AccountID, j.ID, j.Attempt)
	return tag.RowsAffected() == 1, err
}

func (w *Worker) recordFailure(ctx context.Context, j job, delay time.Duration, cause error, permanent bool) (held bool, err error) {
	tag, err := w.pool.Exec(ctx, `
UPDATE staged_jobs
   SET run_at     = now() + $4::interval,
       last_error = $5,
       failed_at  = now() + $6::interval
 WHERE account_id = $1
   AND id = $2
   AND attempt = $3
   AND failed_at IS NULL`, j.AccountID, j.ID, j.Attempt, delay, errorText(cause), postgres.NowIf(permanent))
	return tag.RowsAffected() == 1, err
}

func errorText(cause error) string {
	const limit = 500 // characters, as the column's CHECK requires
	text := cause.Error()
	if failed, ok := errors.AsType[*sendError](cause); ok {
		text += " (" + failed.cause.Error() + ")"
	}
	return postgres.Text(text, limit)
}

// ReadStats counts the jobs of all accounts, for metrics. The age is that of the oldest pending
// job, or 0. The query's last condition is always true, and selects the two partial indexes.
func ReadStats(ctx context.Context, pool *pgxpool.Pool) (pending int, oldest time.Duration, failed int, err error) {
	err = pool.QueryRow(ctx, `
SELECT count(*) FILTER (WHERE failed_at IS NULL),
       coalesce(now() - min(created_at) FILTER (WHERE failed_at IS NULL), interval '0'),
       count(failed_at)
  FROM staged_jobs
 WHERE kind = $1
   AND (failed_at IS NULL OR failed_at IS NOT NULL)`, kind).Scan(&pending, &oldest, &failed)
	if err != nil {
		err = fmt.Errorf("receipts: count jobs: %w", err)
	}
	return pending, oldest, failed, err
}

const kind = "receipt"

// StageTx queues the INSERT of an order's only receipt job in the caller's transaction (R15).
func StageTx(tx postgres.Queuer, accountID, orderID uuid.UUID) {
	tx.Queue(`
		INSERT INTO staged_jobs (
			account_id,
			id,
			kind,
			args
		) VALUES ($1, $2, $3, jsonb_build_object('order_id', $4::uuid))`,
		accountID, uuid.NewHash(sha256.New(), orderID, []byte("orders-api receipt job"), 8), kind, orderID)
}
