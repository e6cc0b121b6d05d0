package crash_test

import (
	"context"
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

// shop is all that one case works with: a database with two accounts, a
// provider, and processes of the program.
type shop struct {
	t       testing.TB
	program string
	pool    *pgxpool.Pool
	stripe  *stripetest.Server
	fronts  []*front
	ann     account  // who orders
	bob     account  // and who must not notice
	answers []answer // all that clients were told
	request string   // Ann's
}

// account is one customer of the API. The e-mail address marks everything of
// theirs.
type account struct {
	id     uuid.UUID
	apiKey string
	email  string
	path   string // where they send their requests
}

func newShop(t testing.TB, program string) *shop {
	t.Helper()
	s := &shop{t: t, program: program, pool: dbtest.New(t), stripe: stripetest.New(stripetest.Options{CompareBytes: true})}
	s.ann, s.bob = s.account("ann@shop.test"), s.account("bob@shop.test")
	_, err := s.pool.Exec(t.Context(), truthSchema)
	require.NoError(t, err)
	return s
}

func (s *shop) account(email string) account {
	s.t.Helper()
	id, key, err := accounts.Create(s.t.Context(), s.pool, email)
	require.NoError(s.t, err)
	return account{id, key, email, "/v1/orders"}
}

// environ is the environment of a child that reaches the database and the
// provider at these addresses. LOCK_TIMEOUT is longer than a case: leases end
// when the harness says so, see expire.
func environ(database, provider string) []string {
	return []string{
		"DATABASE_URL=" + database,
		"STRIPE_API_BASE=" + provider,
		"STRIPE_SECRET_KEY=sk_test_crash",
		"STRIPE_WEBHOOK_SECRET=" + webhookSecret,
		"STRIPE_TIMEOUT=3s",
		"LOCK_TIMEOUT=2m",
		"COMPLETER_GRACE=5m",
		"LISTEN_ADDR=127.0.0.1:0",
		"ADMIN_ADDR=",
		"GORACE=halt_on_error=1 atexit_sleep_ms=0", // where it has the race detector
	}
}

const webhookSecret = "whsec_crash"

// direct is the environment of a child that no fault strikes.
func (s *shop) direct() []string {
	front, url := newFront(s.t, &border{}, s.stripe, s.now)
	s.fronts = append(s.fronts, front)
	return environ(dbtest.URL(s.pool), url)
}

// behind is the environment of a child whose every exchange passes b.
func (s *shop) behind(b *border) []string {
	front, url := newFront(s.t, b, s.stripe, s.lookAround)
	s.fronts = append(s.fronts, front)
	return environ(newProxy(s.t, b, s.pool).url(s.pool), url)
}

// now is the time by the database's clock.
func (s *shop) now(ctx context.Context) (at time.Time) {
	if err := s.pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&at); err != nil {
		s.t.Errorf("read the clock: %v", err)
	}
	return at
}

// lookAround notes the sessions that hold a transaction while the provider is
// called (R6). Nobody else works in the database at that moment.
func (s *shop) lookAround(ctx context.Context) time.Time {
	_, err := s.pool.Exec(ctx, `
INSERT INTO truth.held
SELECT now(), pid
  FROM pg_stat_activity
 WHERE datname = current_database()
   AND pid <> pg_backend_pid()
   AND application_name = 'orders-api'
   AND state LIKE 'idle in transaction%'`)
	if err != nil {
		s.t.Errorf("look for transactions: %v", err)
	}
	return s.now(ctx)
}

func (s *shop) start(environ []string, args ...string) *child {
	s.t.Helper()
	return start(s.t, s.program, environ, args...)
}

// expire lets every lease run out, by moving it into the past. A row that
// somebody holds locked is left as it is.
func (s *shop) expire() {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), `
UPDATE idempotency_keys
   SET locked_at   = locked_at - interval '1 day',
       last_run_at = last_run_at - interval '1 day'
 WHERE id IN (
           SELECT id
             FROM idempotency_keys
            WHERE recovery_point <> 'finished'
              FOR UPDATE SKIP LOCKED
       )`)
	require.NoError(s.t, err)
}

// settle waits until no session of the program is inside a transaction, and
// says whether that came to pass: sessions of a paused child are ended by their
// timeouts (R21).
func (s *shop) settle() bool {
	s.t.Helper()
	return s.eventually(func() bool {
		return s.query(`
SELECT pid::text
  FROM pg_stat_activity
 WHERE datname = current_database()
   AND pid <> pg_backend_pid()
   AND application_name = 'orders-api'
   AND xact_start IS NOT NULL`) == nil
	})
}

// query returns the one column of a query, nil when it has no rows.
func (s *shop) query(sql string, arguments ...any) []string {
	s.t.Helper()
	rows, err := s.pool.Query(s.t.Context(), sql, arguments...)
	require.NoError(s.t, err)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(s.t, err)
	if len(found) == 0 {
		return nil
	}
	return found
}

// eventually asks until the answer is yes, and says whether it came.
func (s *shop) eventually(done func() bool) bool {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(patience)
	for !done() {
		select {
		case <-ticker.C:
		case <-deadline:
			return false
		}
	}
	return true
}

// unfinished are Ann's keys that have no answer yet.
func (s *shop) unfinished() []string {
	s.t.Helper()
	return s.query(`
SELECT id || ' at ' || recovery_point || coalesce(', ' || last_error, '')
  FROM idempotency_keys
 WHERE recovery_point <> 'finished'`)
}

// everything is what the tables of the program hold, row by row.
func (s *shop) everything() []string {
	s.t.Helper()
	var all []string
	for _, table := range []string{"idempotency_keys", "orders", "refunds", "audit_records", "staged_jobs"} {
		all = append(all, s.query("SELECT t::text FROM "+table+" t ORDER BY 1")...)
	}
	return all
}
