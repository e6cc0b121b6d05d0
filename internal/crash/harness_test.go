package crash_test

import (
	"context"
	"encoding/base64"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/payments/stripetest"
)

type harness struct {
	t            testing.TB
	program      string
	pool         *pgxpool.Pool
	stripe       *stripetest.Server
	proxies      []*providerProxy
	noSearch     bool       // the provider does not offer it
	shop         *shop      // receives the account's events; nil if the account has no endpoint
	other        *child     // see bystander
	account      account    // whose request the fault hits
	otherAccount account    // uses the same idempotency key, and must not be affected
	params       string     // body of the account's request
	responses    []response // all that clients received
}

type account struct {
	id     uuid.UUID
	apiKey string
	email  string // in all of the account's orders, and in nothing of another account
	path   string // of its requests
	key    string // of its requests
}

const oldAge = 25 * time.Hour

// newHarness returns a harness whose provider's clock is late by age, until h.age makes
// the rows as old.
func newHarness(t testing.TB, program string, age time.Duration) *harness {
	t.Helper()
	h := &harness{t: t, program: program, pool: dbtest.New(t)}
	clock := func() time.Time { return time.Now().Add(-age) }
	h.stripe = stripetest.New(stripetest.Options{Clock: clock})
	h.account, h.otherAccount = h.createAccount("ann@example.test"), h.createAccount("bob@example.test")
	_, err := h.pool.Exec(t.Context(), observedSchema)
	require.NoError(t, err)
	return h
}

func (h *harness) createAccount(email string) account {
	h.t.Helper()
	id, key, err := accounts.Create(h.t.Context(), h.pool, email)
	require.NoError(h.t, err)
	return account{id, key, email, "/v1/orders", idempotencyKey}
}

// environ is the environment of a child. LEASE_DURATION is longer than a case: only
// expireLeases ends leases.
func (h *harness) environ(database, provider string) []string {
	environ := []string{
		"DATABASE_URL=" + database,
		"STRIPE_API_BASE=" + provider,
		"STRIPE_SECRET_KEY=sk_test_crash",
		"STRIPE_WEBHOOK_SECRET=" + webhookSecret,
		"STEP_TIMEOUT=3s",
		"LEASE_DURATION=2m",
		"COMPLETER_GRACE=5m",
		"LISTEN_ADDR=127.0.0.1:0",
		"ADMIN_ADDR=",
		"SMTP_URL=smtp://127.0.0.1:1", "RECEIPTS_FROM=shop@example.com", // none is sent
		// If it has the race detector.
		"GORACE=halt_on_error=1 atexit_sleep_ms=0",
		// A child ends before its heap grows.
		"GOGC=off",
	}
	if h.shop != nil {
		environ = append(environ, "EVENTS_URL="+h.shop.url, "EVENTS_SECRET=whsec_"+base64.StdEncoding.EncodeToString(make([]byte, 24)))
	}
	return environ
}

const webhookSecret = "whsec_crash"

func (h *harness) direct() []string {
	proxy, url := newProviderProxy(h.t, &interceptor{}, h.stripe, h.now, h.noSearch)
	h.proxies = append(h.proxies, proxy)
	return h.environ(dbtest.URL(h.pool), url)
}

func (h *harness) intercepted(i *interceptor) []string {
	proxy, url := newProviderProxy(h.t, i, h.stripe, h.recordOpenTransactions, h.noSearch)
	h.proxies = append(h.proxies, proxy)
	return h.environ(newDatabaseProxy(h.t, i, h.pool).url(h.pool), url)
}

func (h *harness) now(ctx context.Context) (at time.Time) {
	if err := h.pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&at); err != nil {
		h.t.Errorf("read the database's clock: %v", err)
	}
	return at
}

// recordOpenTransactions records sessions with an open transaction during a provider
// call (R6). No other process uses the database then.
func (h *harness) recordOpenTransactions(ctx context.Context) time.Time {
	_, err := h.pool.Exec(ctx, `
INSERT INTO observed.open_transaction
SELECT now(), pid
  FROM pg_stat_activity
 WHERE datname = current_database()
   AND pid <> pg_backend_pid()
   AND application_name = 'orders-api'
   AND state LIKE 'idle in transaction%'`)
	if err != nil {
		h.t.Errorf("record open transactions: %v", err)
	}
	return h.now(ctx)
}

func (h *harness) start(environ []string, args ...string) *child {
	h.t.Helper()
	return start(h.t, h.program, environ, args...)
}

// command runs a command without a fault until its end.
func (h *harness) command(args ...string) response {
	h.t.Helper()
	return exit(h.start(h.direct(), args...))
}

// bystander returns a process without a fault. All steps of the case share it.
func (h *harness) bystander() *child {
	h.t.Helper()
	if h.other == nil {
		h.other = h.start(h.direct(), "serve")
	}
	return h.other
}

// age lets time pass for the provider and for all rows.
func (h *harness) age(d time.Duration) {
	h.t.Helper()
	h.stripe.Advance(d)
	_, err := h.pool.Exec(h.t.Context(), `
WITH aged_keys AS (
    UPDATE idempotency_keys
       SET created_at         = created_at - $1::interval,
           locked_at          = locked_at - $1::interval,
           updated_at         = updated_at - $1::interval,
           finished_at        = finished_at - $1::interval,
           action_required_at = action_required_at - $1::interval
), aged_orders AS (
    UPDATE orders SET created_at = created_at - $1::interval
), aged_refunds AS (
    UPDATE refunds
       SET created_at         = created_at - $1::interval,
           provider_failed_at = provider_failed_at - $1::interval,
           provider_sent_at   = provider_sent_at - $1::interval
)
INSERT INTO observed.aged VALUES (clock_timestamp(), $1)`, d)
	require.NoError(h.t, err)
}

// rewrite changes rows without the triggers and foreign keys, as a failover does.
func (h *harness) rewrite(sql string, arguments ...any) {
	h.t.Helper()
	require.NoError(h.t, pgx.BeginFunc(h.t.Context(), h.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(h.t.Context(), "SET LOCAL session_replication_role = replica"); err != nil {
			return err
		}
		_, err := tx.Exec(h.t.Context(), sql, arguments...)
		return err
	}))
}

// expireLeases moves the start of every lease that no session has locked into the past.
func (h *harness) expireLeases() {
	h.t.Helper()
	_, err := h.pool.Exec(h.t.Context(), `
UPDATE idempotency_keys
   SET locked_at   = locked_at - interval '1 day',
       updated_at = updated_at - interval '1 day'
 WHERE id IN (
           SELECT id
             FROM idempotency_keys
            WHERE recovery_point <> 'finished'
              FOR UPDATE SKIP LOCKED
       )`)
	require.NoError(h.t, err)
	if h.shop != nil {
		h.expireJobs()
	}
}

// awaitTransactions waits until the program has no open transaction. The timeouts of
// R21 end those of a paused child.
func (h *harness) awaitTransactions() bool {
	h.t.Helper()
	return h.eventually(func() bool {
		return h.query(`
SELECT pid::text
  FROM pg_stat_activity
 WHERE datname = current_database()
   AND pid <> pg_backend_pid()
   AND application_name = 'orders-api'
   AND xact_start IS NOT NULL`) == nil
	})
}

func (h *harness) query(sql string, arguments ...any) []string {
	h.t.Helper()
	rows, err := h.pool.Query(h.t.Context(), sql, arguments...)
	require.NoError(h.t, err)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(h.t, err)
	if len(found) == 0 {
		return nil
	}
	return found
}

func (h *harness) eventually(done func() bool) bool {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(timeout)
	for !done() {
		select {
		case <-ticker.C:
		case <-deadline:
			return false
		}
	}
	return true
}

func (h *harness) unfinishedKeys() []string {
	h.t.Helper()
	return h.query(`
SELECT id || ' at ' || recovery_point || coalesce(', ' || last_error, '')
  FROM idempotency_keys
 WHERE recovery_point <> 'finished'`)
}

// allRows omits what reading the provider again changes: when it was read, and the job for that.
func (h *harness) allRows() []string {
	h.t.Helper()
	return append(h.rowsOf("idempotency_keys", "refunds"), h.query(`
SELECT (to_jsonb(o) - 'provider_read_at')::text FROM orders o
UNION ALL
SELECT a::text FROM audit_records a WHERE action NOT LIKE 'provider_change.%'
UNION ALL
SELECT j::text FROM staged_jobs j WHERE kind <> 'provider_change'
 ORDER BY 1`)...)
}

func (h *harness) rowsOf(tables ...string) []string {
	h.t.Helper()
	var rows []string
	for _, table := range tables {
		rows = append(rows, h.query("SELECT t::text FROM "+table+" t ORDER BY 1")...)
	}
	return rows
}
