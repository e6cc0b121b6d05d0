package main_test

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

// abandon makes orders whose clients gave up: the provider took no confirm. Their
// last runs were ten minutes ago.
func (s *shop) abandon(idempotencyKeys ...string) {
	s.t.Helper()
	a := s.serve(s.environ, "--shutdown-delay", "0")
	s.abandonAt(a, idempotencyKeys...)
	a.stop()
}

func (s *shop) abandonAt(a *api, idempotencyKeys ...string) {
	s.t.Helper()
	away := s.providerAway()
	for _, key := range idempotencyKeys {
		answer, err := a.order(key, tea)
		require.NoError(s.t, err)
		require.Equal(s.t, http.StatusServiceUnavailable, answer.status)
	}
	away.Release()
	s.exec("UPDATE idempotency_keys SET last_run_at = last_run_at - interval '10 minutes' WHERE recovery_point <> 'finished'")
}

// providerAway makes the provider take no confirm until it is released. It refuses
// the key to it: what is not sent again takes no time.
func (s *shop) providerAway() *stripetest.Injection {
	return s.stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: confirmEndpoint, Times: stripetest.Always})
}

func (s *shop) exec(statement string, arguments ...any) {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), statement, arguments...)
	require.NoError(s.t, err)
}

func (s *shop) count(query string, arguments ...any) int {
	s.t.Helper()
	var n int
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), query, arguments...).Scan(&n))
	return n
}

// lines returns those that contain text.
func lines(output, text string) []string {
	var found []string
	for line := range strings.Lines(output) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// requireOneLine checks that a pass says in one line what it came to.
func requireOneLine(t *testing.T, stderr, text string, fields ...string) {
	t.Helper()
	found := lines(stderr, text)
	require.Len(t, found, 1, stderr)
	for _, field := range append(fields, "took=") {
		require.Contains(t, found[0], field)
	}
}

func TestCompleter_onePass(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.abandon("abandoned-order-001", "abandoned-order-002", "abandoned-order-003")
	s.exec("UPDATE idempotency_keys SET last_run_at = now() WHERE idempotency_key = 'abandoned-order-003'")

	code, stdout, stderr := run(t, s.environ, "completer")
	require.Zero(t, code, stderr)
	require.Empty(t, stdout)
	requireOneLine(t, stderr, `msg="completer pass"`, "completed=2 busy=0 failed=0 needs_review=0")
	require.Len(t, s.stripe.Charges(), 2)
	require.Equal(t, 2, s.count("SELECT count(*) FROM orders WHERE status = 'paid'"))
	require.Equal(t, 2, s.staged())

	code, _, stderr = run(t, s.environ, "completer")
	require.Zero(t, code, stderr)
	requireOneLine(t, stderr, `msg="completer pass"`, "completed=0 busy=0 failed=0 needs_review=0")

	s.exec("UPDATE idempotency_keys SET last_run_at = last_run_at - interval '10 minutes' WHERE recovery_point <> 'finished'")
	code, _, stderr = run(t, s.environ, "completer", "--limit", "1", "--concurrency", "1")
	require.Zero(t, code, stderr)
	require.Len(t, s.stripe.Charges(), 3)
}

func TestCompleter_endsBadly(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.abandon("abandoned-order-011", "abandoned-order-012")
	s.exec("UPDATE idempotency_keys SET completer_attempt = 1, last_run_at = now() - interval '1 day' WHERE idempotency_key = 'abandoned-order-012'")
	away := s.providerAway()
	defer away.Release()

	code, stdout, stderr := run(t, s.with("COMPLETER_MAX_ATTEMPTS=2"), "completer")
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	requireOneLine(t, stderr, `msg="completer pass"`, "completed=0 busy=0 failed=1 needs_review=1")
	require.Len(t, lines(stderr, `level=ERROR msg="abandoned key needs review, no attempts are left"`), 1)
	require.Contains(t, stderr, "orders: abandoned keys not completed: 1 to be tried again, 1 need review (orders keys list)\n")
}

// Whatever is wrong may be right at the next pass.
func TestCompleter_repeats(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	away := s.providerAway()
	c := start(t, s.environ, "completer", "--every", "20ms")
	c.waitFor(&c.stderr, `msg="completer pass" completed=0`)
	s.abandon("abandoned-order-021") // which ends providerAway for itself only
	c.waitFor(&c.stderr, `level=ERROR msg="pass ended badly" error="abandoned keys not completed: 1 to be tried again`)
	away.Release()
	s.exec("UPDATE idempotency_keys SET last_run_at = last_run_at - interval '1 day'")
	c.waitFor(&c.stderr, `msg="completer pass" completed=1`)
	c.stop()
	require.Len(t, s.stripe.Charges(), 1)
}

// A signal ends the pass between two keys, not within one.
func TestCompleter_stoppedInAPass(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"one pass": {"--concurrency", "1"}, "repeating": {"--concurrency", "1", "--every", "1h"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.abandon("abandoned-order-031", "abandoned-order-032", "abandoned-order-033", "abandoned-order-034")
			held := s.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
			c := start(t, s.environ, append([]string{"completer"}, args...)...)
			<-held.Reached()
			c.signal(syscall.SIGTERM)
			c.waitFor(&c.stderr, `msg="stopping: the keys in hand are finished, no more are taken"`)
			require.False(t, c.ended())
			held.Release()
			require.Zero(t, c.wait(), "%s", &c.stderr)
			requireOneLine(t, c.stderr.String(), `msg="completer pass"`, "completed=1 busy=0 failed=0 needs_review=0")
			require.Len(t, s.stripe.Charges(), 1)
			require.Equal(t, 3, s.count("SELECT count(*) FROM idempotency_keys WHERE completer_attempt = 0 AND locked_at IS NULL"))
		})
	}
}

func TestReaper_onePass(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.sell("ancient-order-001")
	s.exec("UPDATE idempotency_keys SET finished_at = now() - interval '73 hours'")
	s.abandon("ancient-order-002")
	s.exec("UPDATE idempotency_keys SET created_at = now() - interval '9 years'")
	s.sell("recent-order-0001")
	env := s.with("STRIPE_SECRET_KEY=", "STRIPE_API_BASE=") // which it does not need
	const rows = "SELECT count(*) FROM idempotency_keys"

	code, stdout, stderr := run(t, env, "reaper", "--dry-run")
	require.Zero(t, code, stderr)
	require.Equal(t, "finished keys older than 72h0m0s: 1; none was deleted\n", stdout)
	require.Equal(t, 3, s.count(rows))

	code, stdout, stderr = run(t, env, "reaper")
	require.Zero(t, code, stderr)
	require.Empty(t, stdout)
	requireOneLine(t, stderr, `msg="reaper pass"`, "deleted=1")
	require.Len(t, lines(stderr, "level=WARN"), 1)
	require.Regexp(t, `level=WARN msg="keys are unfinished although they are past the retention; they are kept \(orders keys list\)" keys=1\n`, stderr)
	require.Equal(t, 2, s.count(rows))
	require.Zero(t, s.count(rows+" WHERE idempotency_key = 'ancient-order-001'"))
	require.Equal(t, 3, s.count("SELECT count(*) FROM orders"))

	code, stdout, stderr = run(t, append(env, "KEY_RETENTION=6m"), "reaper", "--dry-run")
	require.Zero(t, code, stderr)
	require.Equal(t, "finished keys older than 6m0s: 0; none was deleted\n", stdout)
}

func TestReaper_repeats(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := start(t, s.environ, "reaper", "--every", "20ms", "--batch", "1")
	r.waitFor(&r.stderr, `msg="reaper pass" deleted=0`)
	s.sell("ancient-order-011")
	s.exec("UPDATE idempotency_keys SET finished_at = now() - interval '73 hours'")
	r.waitFor(&r.stderr, `msg="reaper pass" deleted=1`)
	r.stop()
	require.Zero(t, s.count("SELECT count(*) FROM idempotency_keys"))
}

// A repeating command outlives a database that goes away and comes back.
func TestReaper_repeatsWithoutADatabase(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := start(t, s.environ, "reaper", "--every", "20ms")
	r.waitFor(&r.stderr, `msg="reaper pass"`)
	s.exec("ALTER TABLE idempotency_keys RENAME TO somewhere_else")
	r.waitFor(&r.stderr, `level=ERROR msg="pass ended badly" error="reap keys: `)
	s.exec("ALTER TABLE somewhere_else RENAME TO idempotency_keys")
	s.sell("ancient-order-021")
	s.exec("UPDATE idempotency_keys SET finished_at = now() - interval '73 hours'")
	r.waitFor(&r.stderr, `msg="reaper pass" deleted=1`)
	r.stop()
}
