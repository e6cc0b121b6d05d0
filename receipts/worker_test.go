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
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/internal/mailtest"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/receipts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dbtest.Main{M: m}) }

type fixture struct {
	pool    *pgxpool.Pool
	account uuid.UUID
	orders  map[uuid.UUID]receipts.Order // paid ones
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	f := fixture{pool: dbtest.New(t), account: uuid.New(), orders: map[uuid.UUID]receipts.Order{}}
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
	order := receipts.Order{
		ID: uuid.New(), Email: email, Currency: "jpy", Amount: 1500, PaidAt: time.Now(),
		Items: []receipts.Item{{SKU: "mug", Description: "Mug, blue", Quantity: 3, UnitAmount: 500}},
	}
	f.orders[order.ID] = order
	f.stage(t, order.ID)
	return order.ID
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
	LastError string
	Failed    bool
}

func (f fixture) jobs(t *testing.T) []job {
	t.Helper()
	rows, err := f.pool.Query(t.Context(), `
SELECT coalesce(last_error, ''), failed_at IS NOT NULL
  FROM staged_jobs
 WHERE kind = 'receipt'
 ORDER BY created_at`)
	require.NoError(t, err)
	jobs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[job])
	require.NoError(t, err)
	return jobs
}

// find returns an order, as orders.Service.Receipt does.
func (f fixture) find(_ context.Context, _, id uuid.UUID) (receipts.Order, error) {
	order, paid := f.orders[id]
	if !paid {
		return order, fmt.Errorf("%w: no such paid order", jobs.ErrPermanent)
	}
	return order, nil
}

func (f fixture) worker(mailer receipts.Mailer) *jobs.Worker {
	return receipts.NewWorker(f.pool, f.find, mailer, "The Shop <shop@example.com>", slog.New(slog.DiscardHandler))
}

func requirePass(t *testing.T, worker *jobs.Worker, want jobs.Result) {
	t.Helper()
	got, err := worker.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestRunOnce_sends(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	server := mailtest.New(t, mailtest.Script{SMTPUTF8: true})
	worker := f.worker(newSMTP(t, "smtp://"+server.Address))
	order := f.insertPaidOrder(t, "jane@example.com")

	requirePass(t, worker, jobs.Result{jobs.Done: 1})
	requirePass(t, worker, jobs.Result{})

	require.Empty(t, f.jobs(t))
	var audited string
	require.NoError(t, f.pool.QueryRow(t.Context(), `
SELECT string_agg(concat_ws(' ', account_id, resource_type, resource_id, action, data), ', ')
  FROM audit_records`).Scan(&audited))
	require.Equal(t, f.account.String()+" order "+order.String()+` receipt.done {"attempt": 1}`, audited)
	require.Len(t, server.Mails(), 1)
	require.Equal(t, "shop.example.com", server.Mails()[0].Hello)
	require.False(t, server.Mails()[0].UTF8, "older servers reject a mail that requests SMTPUTF8")
	require.Equal(t, "shop@example.com", server.Mails()[0].From)
	require.Equal(t, []string{"jane@example.com"}, server.Mails()[0].To)
	mail := receipts.ParseMail(t, []byte(server.Mails()[0].Raw))
	require.Equal(t, "The Shop: receipt for order "+order.String(), mail.Header.Get("Subject"))
	require.Contains(t, mail.Text, "3 × Mug, blue (mug)\n    500 JPY each, 1500 JPY\n")
	require.Contains(t, mail.Text, "Total: 1500 JPY\n")
}

func TestRunOnce_invalidJobs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	server := mailtest.New(t, mailtest.Script{})
	f.insertJob(t, "receipt", `{}`)
	f.insertJob(t, "receipt", `{"order_id": "not an id"}`)
	f.insertJob(t, "receipt", `[1]`)
	f.stage(t, uuid.New()) // no such order, or it is not paid or erased
	f.insertPaidOrder(t, "jane@example.com\r\nBcc: eve@example.com")
	f.insertJob(t, "invoice", `{"order_id": "of another kind of job"}`)
	f.insertPaidOrder(t, "jane@example.com")

	worker := f.worker(newSMTP(t, "smtp://"+server.Address))
	requirePass(t, worker, jobs.Result{jobs.Done: 1, jobs.Failed: 2, jobs.Retried: 3})

	require.Len(t, server.Mails(), 1)
	require.Equal(t, []string{"jane@example.com"}, server.Mails()[0].To)
	var others int
	require.NoError(t, f.pool.QueryRow(t.Context(), `SELECT attempt FROM staged_jobs WHERE kind = 'invoice'`).Scan(&others))
	require.Zero(t, others)
}

// What becomes of a receipt, and of the worker's start, for what a mail server can do.
func TestMailServer(t *testing.T) {
	t.Parallel()
	toRecipient := func(code int, a, b, c int) mailtest.Script {
		return mailtest.Script{OnRcpt: func(_ net.Conn, to string) error {
			return mailtest.Rejection(code, smtp.EnhancedCode{a, b, c}, "unknown user "+to)
		}}
	}
	for name, test := range map[string]struct {
		script mailtest.Script
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
		"550 without a status code":              {script: mailtest.Script{OnRcpt: func(net.Conn, string) error { return mailtest.Rejection(550, smtp.NoEnhancedCode, "no") }}, want: jobs.Retried, error: "reply 550"},
		"loses the connection after the content": {script: mailtest.Script{OnData: func(c net.Conn) error { return c.Close() }}, want: jobs.Retried, error: "no response"},
		"550 5.7.1, our sender address":          {script: mailtest.Script{OnMail: func() error { return mailtest.Rejection(550, smtp.EnhancedCode{5, 7, 1}, "no") }}, want: jobs.Retried, error: "550 5.7.1"},
		"no STARTTLS for a login":                {script: mailtest.Script{Password: "s3cret"}, url: "smtp://shop:s3cret@0.0.0.0:%s", want: jobs.Retried, error: "STARTTLS", start: "STARTTLS"},
		"rejects the credentials":                {script: mailtest.Script{Password: "s3cret"}, url: "smtp://shop:guess@127.0.0.1:%s", want: jobs.Retried, error: "535", start: receipts.ErrCredentials.Error()},
		"rejects the credentials until later":    {script: mailtest.Script{Password: "s3cret", AuthFailure: mailtest.Rejection(454, smtp.EnhancedCode{4, 7, 0}, "later")}, url: "smtp://shop:s3cret@127.0.0.1:%s", want: jobs.Retried, error: "454", start: "454"},
		"accepts":                                {url: "smtp://127.0.0.1:%s", want: jobs.Done},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			server := mailtest.New(t, test.script)
			mailer := newSMTP(t, fmt.Sprintf(cmp.Or(test.url, "smtp://127.0.0.1:%s"), port(t, server)))
			err := mailer.Check(t.Context())
			if test.start == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.start)
			}
			require.Equal(t, test.start == receipts.ErrCredentials.Error(), errors.Is(err, receipts.ErrCredentials))

			worker := f.worker(mailer)
			var log bytes.Buffer
			worker.Logger = slog.New(slog.NewJSONHandler(&log, nil))
			order := f.insertPaidOrder(t, "jane@example.com")
			requirePass(t, worker, jobs.Result{test.want: 1})
			require.NotContains(t, log.String(), "jane")
			if test.want == jobs.Done {
				return
			}
			require.Contains(t, f.jobs(t)[0].LastError, test.error)
			require.NotContains(t, f.jobs(t)[0].LastError, "jane")
			require.Equal(t, test.want == jobs.Failed, f.jobs(t)[0].Failed)
			if test.want == jobs.Failed {
				require.Contains(t, log.String(), `"level":"ERROR","msg":"receipt failed"`)
				require.Contains(t, log.String(), order.String())
				require.Contains(t, f.jobs(t)[0].LastError, "unknown user [removed]")
			}
		})
	}
}
