package receipts_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/wneessen/go-mail"

	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/receipts"
)

type fixture struct {
	pool    *pgxpool.Pool
	account uuid.UUID
}

func newFixture(t *testing.T, configure ...func(*pgxpool.Config)) fixture {
	t.Helper()
	f := fixture{pool: dbtest.New(t, configure...), account: uuid.New()}
	f.exec(t, `INSERT INTO accounts (id, name) VALUES ($1, 'Test account')`, f.account)
	return f
}

func (f fixture) exec(t *testing.T, query string, arguments ...any) {
	t.Helper()
	_, err := f.pool.Exec(t.Context(), query, arguments...)
	require.NoError(t, err)
}

func (f fixture) insertPaidOrder(t *testing.T, email string) uuid.UUID {
	t.Helper()
	order := uuid.New()
	f.exec(t, `
INSERT INTO orders (
    id, account_id, idempotency_key, email, currency, amount, items, metadata,
    payment_method, status, payment_intent_id, created_at, paid_at
) VALUES (
    $1, $2, $3, $4, 'jpy', 1500, '[{"sku":"mug","description":"Mug, blue","quantity":3,"unit_amount":500}]', '{}',
    'pm_card_visa', 'paid', $5, now(), now()
)`, order, f.account, "key-of-"+order.String(), email, "pi_"+order.String())
	f.stage(t, order)
	return order
}

func (f fixture) stage(t *testing.T, order uuid.UUID) {
	t.Helper()
	batch := &pgx.Batch{}
	receipts.StageTx(batch, f.account, order)
	require.NoError(t, f.pool.SendBatch(t.Context(), batch).Close())
}

func (f fixture) insertJob(t *testing.T, kind, args string) {
	t.Helper()
	f.exec(t, `INSERT INTO staged_jobs (id, account_id, kind, args) VALUES ($1, $2, $3, $4)`, uuid.New(), f.account, kind, args)
}

type job struct {
	Attempt   int
	Wait      time.Duration // until it is due
	LastError string
	Failed    bool
}

func (f fixture) jobs(t *testing.T) []job {
	t.Helper()
	rows, err := f.pool.Query(t.Context(), `
SELECT attempt, run_at - now(), coalesce(last_error, ''), failed_at IS NOT NULL
  FROM staged_jobs
 WHERE kind = 'receipt'
 ORDER BY created_at`)
	require.NoError(t, err)
	jobs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[job])
	require.NoError(t, err)
	return jobs
}

func (f fixture) audited(t *testing.T, order uuid.UUID) []string {
	t.Helper()
	rows, err := f.pool.Query(t.Context(), `
SELECT concat_ws(' ', resource_type, action, data)
  FROM audit_records
 WHERE account_id = $1
   AND resource_id = $2
 ORDER BY id`, f.account, order.String())
	require.NoError(t, err)
	records, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return records
}

// find reads an order of insertPaidOrder, as orders.Service.Receipt does.
func (f fixture) find() receipts.FindOrder {
	return func(ctx context.Context, accountID, id uuid.UUID) (receipts.Order, error) {
		rows, _ := f.pool.Query(ctx, `
SELECT id, email, currency, amount, items, paid_at
  FROM orders
 WHERE account_id = $1
   AND id = $2
   AND paid_at IS NOT NULL
   AND email IS NOT NULL`, accountID, id) // CollectExactlyOneRow returns its error
		order, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByNameLax[receipts.Order])
		if errors.Is(err, pgx.ErrNoRows) {
			err = fmt.Errorf("%w: no such paid order", jobs.ErrPermanent)
		}
		return order, err
	}
}

const makeDue = `UPDATE staged_jobs SET run_at = now()`

func (f fixture) worker(t *testing.T, mailer receipts.Mailer, change ...func(*jobs.Worker)) *jobs.Worker {
	t.Helper()
	worker := receipts.NewWorker(f.pool, f.find(), mailer, "The Shop <shop@example.com>", slog.New(slog.DiscardHandler))
	for _, c := range change {
		c(worker)
	}
	return worker
}

func requirePass(t *testing.T, worker *jobs.Worker, want jobs.Result) {
	t.Helper()
	got, err := worker.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, got)
}

type mailerFunc func(context.Context, uuid.UUID, *mail.Msg) error

func (f mailerFunc) Send(ctx context.Context, orderID uuid.UUID, receipt *mail.Msg) error {
	return f(ctx, orderID, receipt)
}

func returns(err error) receipts.Mailer {
	return mailerFunc(func(context.Context, uuid.UUID, *mail.Msg) error { return err })
}
