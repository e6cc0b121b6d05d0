package receipts_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/wneessen/go-mail"

	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/receipts"
)

func TestBackoff(t *testing.T) {
	t.Parallel()
	total := time.Duration(0)
	for attempt := 1; attempt <= 300; attempt++ {
		delay := jobs.Backoff(attempt)
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
	server := newMailServer(t, script{smtpUTF8: true})
	worker := f.worker(t, newSMTP(t, server.url()))
	order := f.insertPaidOrder(t, "jane@example.com")

	requirePass(t, worker, jobs.Result{jobs.Done: 1})
	requirePass(t, worker, jobs.Result{})

	require.Empty(t, f.jobs(t))
	require.Equal(t, []string{`order receipt.done {"attempt": 1}`}, f.audited(t, order))
	require.Len(t, server.mails(), 1)
	require.Equal(t, "shop.example.com", server.mails()[0].hello)
	require.False(t, server.mails()[0].utf8, "older servers reject a mail that requests SMTPUTF8")
	require.Equal(t, "shop@example.com", server.mails()[0].from)
	require.Equal(t, []string{"jane@example.com"}, server.mails()[0].to)
	mail := receipts.ParseMail(t, server.mails()[0].raw)
	require.Equal(t, "The Shop: receipt for order "+order.String(), mail.Header.Get("Subject"))
	require.Contains(t, mail.Text, "3 × Mug, blue (mug)\n    500 JPY each, 1500 JPY\n")
	require.Contains(t, mail.Text, "Total: 1500 JPY\n")
}

func TestRunOnce_temporaryFailure(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	worker := f.worker(t, returns(errors.New("greylisted")))
	f.insertPaidOrder(t, "jane@example.com")

	const earlier = 6 // attempts, so that the pause is longer than this test
	f.exec(t, `UPDATE staged_jobs SET attempt = $1`, earlier)
	for attempt := 1 + earlier; attempt <= 3+earlier; attempt++ {
		requirePass(t, worker, jobs.Result{jobs.Retried: 1})
		requirePass(t, worker, jobs.Result{}) // not due
		jobs := f.jobs(t)
		require.Len(t, jobs, 1)
		require.Equal(t, attempt, jobs[0].Attempt)
		require.InEpsilon(t, time.Second<<(attempt-1), jobs[0].Wait, 0.25, "doubles with each attempt")
		require.Contains(t, jobs[0].LastError, "greylisted")
		f.exec(t, makeDue)
	}
}

func TestRunOnce_permanentFailure(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	server := newMailServer(t, script{onRcpt: func(_ net.Conn, to string) error {
		return rejection(550, smtp.EnhancedCode{5, 1, 1}, "unknown user "+to)
	}})
	order := f.insertPaidOrder(t, "jane@example.com")
	var log bytes.Buffer
	worker := receipts.NewWorker(f.pool, f.find(), newSMTP(t, server.url()), "shop@example.com", slog.New(slog.NewJSONHandler(&log, nil)))

	requirePass(t, worker, jobs.Result{jobs.Failed: 1})
	f.exec(t, makeDue)
	requirePass(t, worker, jobs.Result{})

	jobs := f.jobs(t)
	require.Len(t, jobs, 1)
	require.True(t, jobs[0].Failed)
	require.Contains(t, jobs[0].LastError, "unknown user [removed]")
	require.Contains(t, log.String(), `"level":"ERROR","msg":"receipt failed"`)
	require.Contains(t, log.String(), order.String())
	require.NotContains(t, log.String(), "jane")
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
	erased := f.insertPaidOrder(t, "erased@example.com")
	f.exec(t, `UPDATE orders SET email = NULL WHERE id = $1`, erased)
	f.insertPaidOrder(t, "jane@example.com\r\nBcc: eve@example.com")
	odd := f.insertPaidOrder(t, "odd@example.com")
	f.exec(t, `UPDATE orders SET items = '[{"quantity": "many"}]' WHERE id = $1`, odd)
	f.insertJob(t, "invoice", `{"order_id": "of another kind of job"}`)
	f.insertPaidOrder(t, "jane@example.com")

	worker := f.worker(t, newSMTP(t, server.url()), func(w *jobs.Worker) { w.Concurrency = 1 })
	requirePass(t, worker, jobs.Result{jobs.Done: 1, jobs.Failed: 4, jobs.Retried: 4})

	require.Len(t, server.mails(), 1)
	require.Equal(t, []string{"jane@example.com"}, server.mails()[0].to)
	var others int
	require.NoError(t, f.pool.QueryRow(t.Context(), `SELECT attempt FROM staged_jobs WHERE kind = 'invoice'`).Scan(&others))
	require.Zero(t, others)
}

func TestRunOnce_oneAttemptPerJob(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	worker := f.worker(t, mailerFunc(func(ctx context.Context, _ uuid.UUID, _ *mail.Msg) error {
		_, err := f.pool.Exec(ctx, "UPDATE staged_jobs SET run_at = now() WHERE last_error IS NOT NULL") // the other is due again
		return errors.Join(errors.New("no"), err)
	}), func(w *jobs.Worker) { w.Concurrency = 1 })
	f.insertPaidOrder(t, "jane@example.com")
	f.insertPaidOrder(t, "joe@example.com")
	requirePass(t, worker, jobs.Result{jobs.Retried: 2})
}

func TestRunOnce_noConnectionWhileSending(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	f.insertPaidOrder(t, "jane@example.com")
	worker := f.worker(t, mailerFunc(func(ctx context.Context, _ uuid.UUID, _ *mail.Msg) error {
		_, err := f.pool.Exec(ctx, "SELECT 1") // would wait forever for the only connection
		return err
	}))
	requirePass(t, worker, jobs.Result{jobs.Done: 1})
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
	worker := f.worker(t, newSMTP(t, server.url()), func(w *jobs.Worker) { w.Concurrency = 1 })

	result, err := worker.RunOnce(ctx)
	require.NoError(t, err)
	require.Equal(t, jobs.Result{jobs.Done: 1}, result)
	require.Len(t, server.mails(), 1)
	jobs := f.jobs(t)
	require.Len(t, jobs, 1, "the mail in progress was finished")
	require.Zero(t, jobs[0].Attempt, "the other job was not claimed")

	result, err = worker.RunOnce(ctx)
	require.NoError(t, err)
	require.Empty(t, result)
}

// What becomes of a receipt, and of the worker's start, for what a mail server can do.
func TestMailServer(t *testing.T) {
	t.Parallel()
	toRecipient := func(code int, a, b, c int) script {
		return script{onRcpt: func(net.Conn, string) error { return rejection(code, smtp.EnhancedCode{a, b, c}, "no") }}
	}
	for name, test := range map[string]struct {
		script script
		url    string // %s is the port; by default without a login
		want   string
		error  string
		start  string // the error of the check at start
	}{
		"450 4.2.0, greylisting":                 {script: toRecipient(450, 4, 2, 0), want: jobs.Retried, error: "450 4.2.0"},
		"550 5.1.1, no such mailbox":             {script: toRecipient(550, 5, 1, 1), want: jobs.Failed, error: "550 5.1.1"},
		"550 5.1.8, our domain":                  {script: toRecipient(550, 5, 1, 8), want: jobs.Retried, error: "550 5.1.8"},
		"552 5.3.4, message too big":             {script: toRecipient(552, 5, 3, 4), want: jobs.Failed, error: "552 5.3.4"},
		"554 5.3.2, system not accepting":        {script: toRecipient(554, 5, 3, 2), want: jobs.Retried, error: "554 5.3.2"},
		"504 5.5.2, our greeting":                {script: toRecipient(504, 5, 5, 2), want: jobs.Retried, error: "504 5.5.2"},
		"554 5.7.1, relaying denied":             {script: toRecipient(554, 5, 7, 1), want: jobs.Retried, error: "554 5.7.1"},
		"550 without a status code":              {script: script{onRcpt: func(net.Conn, string) error { return rejection(550, smtp.NoEnhancedCode, "no") }}, want: jobs.Retried, error: "reply 550"},
		"loses the connection after the content": {script: script{onData: func(c net.Conn) error { return c.Close() }}, want: jobs.Retried, error: "no response"},
		"550 5.7.1, our sender address":          {script: script{onMail: func() error { return rejection(550, smtp.EnhancedCode{5, 7, 1}, "no") }}, want: jobs.Retried, error: "550 5.7.1"},
		"no STARTTLS for a login":                {script: script{password: "s3cret"}, url: "smtp://shop:s3cret@0.0.0.0:%s", want: jobs.Retried, error: "STARTTLS", start: "STARTTLS"},
		"rejects the credentials":                {script: script{password: "s3cret"}, url: "smtp://shop:guess@127.0.0.1:%s", want: jobs.Retried, error: "535", start: receipts.ErrCredentials.Error()},
		"rejects the credentials until later":    {script: script{password: "s3cret", authFailure: rejection(454, smtp.EnhancedCode{4, 7, 0}, "later")}, url: "smtp://shop:s3cret@127.0.0.1:%s", want: jobs.Retried, error: "454", start: "454"},
		"accepts":                                {url: "smtp://127.0.0.1:%s", want: jobs.Done},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			server := newMailServer(t, test.script)
			mailer := newSMTP(t, fmt.Sprintf(cmp.Or(test.url, "smtp://127.0.0.1:%s"), server.port))
			err := mailer.Check(t.Context())
			if test.start == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.start)
			}
			require.Equal(t, test.start == receipts.ErrCredentials.Error(), errors.Is(err, receipts.ErrCredentials))

			worker := f.worker(t, mailer)
			f.insertPaidOrder(t, "jane@example.com")
			requirePass(t, worker, jobs.Result{test.want: 1})
			if test.want == jobs.Done {
				return
			}
			require.Contains(t, f.jobs(t)[0].LastError, test.error)
			require.Equal(t, test.want == jobs.Failed, f.jobs(t)[0].Failed)
		})
	}
}

// A receipt that was staged while the database's clock ran ahead is sent, and alerts until then.
func TestRunOnce_clockAhead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.insertPaidOrder(t, "jane@example.com")
	f.exec(t, `UPDATE staged_jobs SET created_at = now() + interval '2 hours', run_at = now() + interval '2 hours', attempt = 6`)
	stats, err := jobs.ReadStats(t.Context(), f.pool, receipts.Kind)
	require.NoError(t, err)
	require.InDelta(t, 2, stats[receipts.Kind].Oldest.Hours(), 0.1)

	requirePass(t, f.worker(t, returns(errors.New("no"))), jobs.Result{jobs.Retried: 1})
	requirePass(t, f.worker(t, returns(nil)), jobs.Result{}) // not due
	f.exec(t, makeDue)
	requirePass(t, f.worker(t, returns(nil)), jobs.Result{jobs.Done: 1})
}
