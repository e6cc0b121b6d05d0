package receipts_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/receipts"
)

func TestBackoff(t *testing.T) {
	t.Parallel()
	total := time.Duration(0)
	for attempt := 1; attempt <= 300; attempt++ {
		delay := receipts.Backoff(attempt)
		middle := 15 * time.Minute
		if attempt <= 10 {
			middle = time.Second << (attempt - 1)
		}
		require.InEpsilon(t, middle, delay, 0.21, "attempt %d", attempt)
		total += delay
	}
	require.InDelta(t, 72, total.Hours(), 3, "about three days")
}

func TestRunOnce_sends(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	server := newMailServer(t, script{})
	worker := f.worker(t, newSMTP(t, server.url()))
	order := f.insertPaidOrder(t, "jane@example.com")

	requirePass(t, worker, receipts.Result{receipts.Sent: 1})
	requirePass(t, worker, receipts.Result{})

	require.Empty(t, f.jobs(t))
	require.Len(t, server.mails(), 1)
	require.Equal(t, []string{"jane@example.com"}, server.mails()[0].to)
	mail := receipts.ParseMail(t, server.mails()[0].raw)
	require.Equal(t, "The Shop: receipt for order "+order.String(), mail.Header.Get("Subject"))
	require.Contains(t, mail.Text, "3 × Mug, blue (mug)\n    500 JPY each, 1500 JPY\n")
	require.Contains(t, mail.Text, "Total: 1500 JPY\n")
}

func TestRunOnce_temporaryFailure(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	server := newMailServer(t, script{onRcpt: func(net.Conn, string) error {
		return rejection(450, smtp.EnhancedCode{4, 2, 0}, "greylisted")
	}})
	worker := f.worker(t, newSMTP(t, server.url()))
	f.insertPaidOrder(t, "jane@example.com")

	for attempt := 1; attempt <= 3; attempt++ {
		requirePass(t, worker, receipts.Result{receipts.Retried: 1})
		requirePass(t, worker, receipts.Result{}) // not due
		jobs := f.jobs(t)
		require.Len(t, jobs, 1)
		require.Equal(t, attempt, jobs[0].Attempt)
		require.InDelta(t, attempt, jobs[0].Wait.Hours(), 0.1, "grows with the attempts")
		require.Contains(t, jobs[0].LastError, "greylisted")
		f.exec(t, makeDue)
	}
	require.Empty(t, server.mails())
}

func TestRunOnce_permanentFailure(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	server := newMailServer(t, script{onRcpt: func(_ net.Conn, to string) error {
		return rejection(550, smtp.EnhancedCode{5, 1, 1}, "unknown user "+to)
	}})
	order := f.insertPaidOrder(t, "jane@example.com")
	var log bytes.Buffer
	worker, err := receipts.NewWorker(f.pool, newSMTP(t, server.url()),
		receipts.Config{From: "shop@example.com"}, slog.New(slog.NewJSONHandler(&log, nil)))
	require.NoError(t, err)

	requirePass(t, worker, receipts.Result{receipts.Failed: 1})
	f.exec(t, makeDue)
	requirePass(t, worker, receipts.Result{})

	jobs := f.jobs(t)
	require.Len(t, jobs, 1)
	require.True(t, jobs[0].Failed)
	require.Contains(t, jobs[0].LastError, "unknown user jane@example.com")
	require.Contains(t, log.String(), `"level":"ERROR","msg":"receipt marked as failed"`)
	require.Contains(t, log.String(), order.String())
	require.NotContains(t, log.String(), "jane")
}

func TestRunOnce_lastAttempt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var observed []string
	worker := f.worker(t, returns(errors.New("no")), func(w *receipts.Worker) {
		w.SetMaxAttempts(2)
		w.SetObserve(func(outcome string, _ time.Duration) { observed = append(observed, outcome) })
	})
	f.insertPaidOrder(t, "jane@example.com")

	requirePass(t, worker, receipts.Result{receipts.Retried: 1})
	f.exec(t, makeDue)
	requirePass(t, worker, receipts.Result{receipts.Failed: 1})
	require.True(t, f.jobs(t)[0].Failed)
	require.Equal(t, 2, f.jobs(t)[0].Attempt)
	require.Equal(t, []string{receipts.Retried, receipts.Failed}, observed)
}

func TestRunOnce_invalidJobs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	server := newMailServer(t, script{})
	f.insertJob(t, "receipt", `{}`)
	f.insertJob(t, "receipt", `{"order_id": "not an id"}`)
	f.insertJob(t, "receipt", `[1]`)
	f.stage(t, uuid.New()) // no such order
	unpaid := f.insertPaidOrder(t, "unpaid@example.com")
	f.exec(t, `UPDATE orders SET status = 'pending', paid_at = NULL WHERE id = $1`, unpaid)
	f.insertPaidOrder(t, "jane@example.com\r\nBcc: eve@example.com")
	odd := f.insertPaidOrder(t, "odd@example.com")
	f.exec(t, `UPDATE orders SET items = '[{"quantity": "many"}]' WHERE id = $1`, odd)
	f.insertJob(t, "invoice", `{"order_id": "of another kind of job"}`)
	f.insertPaidOrder(t, "jane@example.com")

	worker := f.worker(t, newSMTP(t, server.url()), func(w *receipts.Worker) { w.SetConcurrency(1) })
	requirePass(t, worker, receipts.Result{receipts.Sent: 1, receipts.Failed: 6, receipts.Retried: 1})

	require.Len(t, server.mails(), 1)
	require.Equal(t, []string{"jane@example.com"}, server.mails()[0].to)
	var others int
	require.NoError(t, f.pool.QueryRow(t.Context(), `SELECT attempt FROM staged_jobs WHERE kind = 'invoice'`).Scan(&others))
	require.Zero(t, others)
}

func TestRunOnce_sendTimeout(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	server := newMailServer(t, script{onData: blockUntilEnd(t)})
	worker := f.worker(t, newSMTP(t, server.url()), func(w *receipts.Worker) { w.SetSendTimeout(50 * time.Millisecond) })
	f.insertPaidOrder(t, "jane@example.com")
	requirePass(t, worker, receipts.Result{receipts.Retried: 1})
	require.Contains(t, f.jobs(t)[0].LastError, "deadline exceeded")
}

func TestRunOnce_oneAttemptPerJob(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	worker := f.worker(t, returns(errors.New("no")), func(w *receipts.Worker) {
		w.SetBackoff(func(int) time.Duration { return 0 })
	})
	f.insertPaidOrder(t, "jane@example.com")
	f.insertPaidOrder(t, "joe@example.com")
	requirePass(t, worker, receipts.Result{receipts.Retried: 2})
}

func TestRunOnce_noConnectionWhileSending(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	f.insertPaidOrder(t, "jane@example.com")
	worker := f.worker(t, mailerFunc(func(ctx context.Context, _ receipts.Message) error {
		_, err := f.pool.Exec(ctx, "SELECT 1") // would wait forever for the only connection
		return err
	}))
	requirePass(t, worker, receipts.Result{receipts.Sent: 1})
}

// A cancelled pass finishes the mail in progress and claims no other job.
func TestRunOnce_cancelled(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx, stop := context.WithCancel(t.Context())
	server := newMailServer(t, script{onData: func(net.Conn) error {
		stop() // the mail is accepted, its job not yet deleted
		return nil
	}})
	f.insertPaidOrder(t, "jane@example.com")
	f.insertPaidOrder(t, "joe@example.com")
	worker := f.worker(t, newSMTP(t, server.url()), func(w *receipts.Worker) { w.SetConcurrency(1) })

	result, err := worker.RunOnce(ctx)
	require.NoError(t, err)
	require.Equal(t, receipts.Result{receipts.Sent: 1}, result)
	require.Len(t, server.mails(), 1)
	jobs := f.jobs(t)
	require.Len(t, jobs, 1, "the mail in progress was finished")
	require.Zero(t, jobs[0].Attempt, "the other job was not claimed")

	result, err = worker.RunOnce(ctx)
	require.NoError(t, err)
	require.Empty(t, result)
}
