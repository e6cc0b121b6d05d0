package receipts_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/receipts"
)

// shop is a database with one account, and the means to sell something.
type shop struct {
	pool    *pgxpool.Pool
	account uuid.UUID
}

func newShop(t *testing.T, configure ...func(*pgxpool.Config)) shop {
	t.Helper()
	s := shop{pool: dbtest.New(t, configure...), account: uuid.New()}
	s.exec(t, `INSERT INTO accounts (id, name) VALUES ($1, 'Test shop')`, s.account)
	return s
}

func (s shop) exec(t *testing.T, query string, arguments ...any) {
	t.Helper()
	_, err := s.pool.Exec(t.Context(), query, arguments...)
	require.NoError(t, err)
}

// sell adds a paid order and stages its receipt.
func (s shop) sell(t *testing.T, email string) uuid.UUID {
	t.Helper()
	order := uuid.New()
	s.exec(t, `
		INSERT INTO orders (
			id, account_id, idempotency_key, email, currency, amount, items, metadata,
			payment_method, status, payment_intent_id, created_at, paid_at
		) VALUES (
			$1, $2, $3, $4, 'jpy', 1500, '[{"sku":"mug","description":"Mug, blue","quantity":3,"unit_amount":500}]', '{}',
			'pm_card_visa', 'paid', $5, now(), now()
		)`, order, s.account, "key-of-"+order.String(), email, "pi_"+order.String())
	s.stage(t, order)
	return order
}

func (s shop) stage(t *testing.T, order uuid.UUID) {
	t.Helper()
	batch := &pgx.Batch{}
	receipts.StageTx(batch, s.account, order)
	require.NoError(t, s.pool.SendBatch(t.Context(), batch).Close())
}

// stageRaw stages a job with arguments of a test's choice.
func (s shop) stageRaw(t *testing.T, kind, args string) {
	t.Helper()
	s.exec(t, `INSERT INTO staged_jobs (id, account_id, kind, args) VALUES ($1, $2, $3, $4)`, uuid.New(), s.account, kind, args)
}

// job is what a test looks at in staged_jobs.
type job struct {
	Attempt   int
	Wait      time.Duration // until it is due
	LastError string
	Failed    bool
}

// jobs returns the receipt jobs there are, oldest first.
func (s shop) jobs(t *testing.T) []job {
	t.Helper()
	rows, err := s.pool.Query(t.Context(), `
		SELECT attempt, run_at - now(), COALESCE(last_error, ''), failed_at IS NOT NULL
		FROM staged_jobs
		WHERE kind = 'receipt'
		ORDER BY created_at`)
	require.NoError(t, err)
	jobs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[job])
	require.NoError(t, err)
	return jobs
}

// makeDue is time passing: leases run out and retries are due.
const makeDue = `UPDATE staged_jobs SET run_at = now()`

func (s shop) worker(t *testing.T, mailer receipts.Mailer, configure ...func(*receipts.Config)) *receipts.Worker {
	t.Helper()
	config := receipts.Config{
		From:    "The Shop <shop@example.com>",
		Backoff: func(attempt int) time.Duration { return time.Duration(attempt) * time.Hour },
	}
	for _, change := range configure {
		change(&config)
	}
	worker, err := receipts.NewWorker(s.pool, mailer, config, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	return worker
}

// pass runs one pass and checks its result.
func pass(t *testing.T, worker *receipts.Worker, want receipts.Result) {
	t.Helper()
	got, err := worker.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// mailerFunc is a Mailer made of one function.
type mailerFunc func(context.Context, receipts.Message) error

func (f mailerFunc) Send(ctx context.Context, message receipts.Message) error { return f(ctx, message) }

// row is an order as text.
func (s shop) row(t *testing.T, order uuid.UUID) string {
	t.Helper()
	var text string
	require.NoError(t, s.pool.QueryRow(t.Context(),
		`SELECT o::text FROM orders o WHERE account_id = $1 AND id = $2`, s.account, order).Scan(&text))
	return text
}
