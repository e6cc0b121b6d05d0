package main_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

const listEndpoint = "GET /v1/payment_intents"

// newShopAnHourAgo is a shop whose provider lives an hour ago, so that what it
// was asked for is not young any more once the rows are older too.
func newShopAnHourAgo(t *testing.T) *shop {
	t.Helper()
	s := newShop(t)
	s.stripe = stripetest.New(stripetest.Options{Clock: func() time.Time { return time.Now().Add(-time.Hour) }})
	provider := httptest.NewServer(s.stripe)
	t.Cleanup(provider.Close)
	t.Cleanup(s.stripe.Close)
	s.environ = s.with("STRIPE_API_BASE="+provider.URL, "LOG_LEVEL=error")
	return s
}

// ageRows makes them an hour older.
func (s *shop) ageRows() {
	s.t.Helper()
	for _, statement := range []string{
		"UPDATE orders SET created_at = created_at - interval '1 hour', paid_at = paid_at - interval '1 hour'",
		"UPDATE idempotency_keys SET created_at = created_at - interval '1 hour', last_run_at = last_run_at - interval '1 hour', finished_at = finished_at - interval '1 hour'",
	} {
		_, err := s.pool.Exec(s.t.Context(), statement)
		require.NoError(s.t, err)
	}
}

// sellSome makes paid orders and returns their ids.
func (s *shop) sellSome(idempotencyKeys ...string) []string {
	s.t.Helper()
	a := s.serve(s.with("LOG_LEVEL=info"), "--shutdown-delay", "0")
	var ids []string
	for _, key := range idempotencyKeys {
		answer, err := a.order(key, tea)
		require.NoError(s.t, err)
		ids = append(ids, requirePaid(s.t, answer))
	}
	a.stop()
	s.ageRows()
	return ids
}

// getStuck makes an order that its client gave up.
func (s *shop) getStuck(idempotencyKey string) {
	s.t.Helper()
	s.stripe.Inject(stripetest.Rule{Fault: stripetest.RateLimit, Endpoint: confirmEndpoint, Times: 3})
	a := s.serve(s.with("LOG_LEVEL=info"), "--shutdown-delay", "0")
	answer, err := a.order(idempotencyKey, tea)
	require.NoError(s.t, err)
	require.Equal(s.t, http.StatusServiceUnavailable, answer.status)
	a.stop()
	s.ageRows()
}

func TestReconcile_exitCodes(t *testing.T) {
	t.Parallel()
	s := newShopAnHourAgo(t)
	ids := s.sellSome("reconciled-order-001", "reconciled-order-002", "reconciled-order-003")

	code, stdout, stderr := run(t, s.environ, "reconcile")
	require.Zero(t, code, stderr)
	require.Regexp(t, `^Compared 3 intents, 3 orders and 0 refunds from \S+Z to \S+Z\. Differences: 0, fixed: 0\. Intents of others: 0\.\n$`, stdout)
	require.Empty(t, stderr)

	_, err := s.pool.Exec(t.Context(), "DELETE FROM orders WHERE id = $1", ids[1])
	require.NoError(t, err)
	code, stdout, stderr = run(t, s.environ, "reconcile", "--fix")
	require.Equal(t, 1, code)
	require.Equal(t, "orders: differences between books and provider: 1\n", stderr)
	lines := strings.Split(stdout, "\n")
	require.Equal(t, []string{"KIND", "ORDER", "KEY", "INTENT", "BOOKED", "AT", "PROVIDER", "DETAIL"}, strings.Fields(lines[0]))
	require.Regexp(t, `^charge_without_order  `+ids[1]+`  [0-9a-f-]{36}  pi_\w+  -       2500 usd     intent succeeded, no such order, client told 201$`, lines[1])
	require.Regexp(t, `^Compared 3 intents, 2 orders and 0 refunds .* Differences: 1, fixed: 0\. `, lines[3])
	require.NotContains(t, stdout+stderr, "ada@example.com")
	require.NotContains(t, stdout+stderr, "pm_")

	code, stdout, stderr = run(t, s.environ, "reconcile", "--json")
	require.Equal(t, 1, code)
	require.Equal(t, "orders: differences between books and provider: 1\n", stderr)
	var report map[string]any
	require.NoError(t, json.Unmarshal([]byte(stdout), &report), "one document and nothing else")
	require.EqualValues(t, 3, report["intents"])
	require.EqualValues(t, 2, report["orders"])
	require.EqualValues(t, 0, report["foreign_intents"])
	difference := report["differences"].([]any)[0].(map[string]any)
	require.Equal(t, "charge_without_order", difference["kind"])
	require.Equal(t, ids[1], difference["order_id"])
	require.Equal(t, map[string]any{"amount": 2500.0, "currency": "usd"}, difference["at_provider"])
	require.Equal(t, false, difference["fixed"])
}

func TestReconcile_fix(t *testing.T) {
	t.Parallel()
	s := newShopAnHourAgo(t)
	s.getStuck("reconciled-order-004")

	code, stdout, _ := run(t, s.environ, "reconcile")
	require.Equal(t, 1, code)
	require.Contains(t, stdout, "key_stuck  ")
	require.Empty(t, s.stripe.Charges())

	code, stdout, stderr := run(t, s.environ, "reconcile", "--fix")
	require.Zero(t, code, stderr)
	require.Regexp(t, `(?m)^key_stuck .*; FIXED, resumed: answered 201$`, stdout)
	require.Contains(t, stdout, "Differences: 1, fixed: 1.")
	require.Len(t, s.stripe.Charges(), 1)

	s.ageRows()
	code, stdout, stderr = run(t, s.environ, "reconcile", "--fix", "--json", "--since", "72h")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, `"differences":[]`)
}

func TestReconcile_fixFails(t *testing.T) {
	t.Parallel()
	s := newShopAnHourAgo(t)
	s.getStuck("reconciled-order-005")
	s.stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: "GET /v1/payment_intents/{id}", Times: stripetest.Always})
	code, stdout, stderr := run(t, s.environ, "reconcile", "--fix")
	require.Equal(t, 1, code)
	require.Regexp(t, `(?m)^key_stuck .*; NOT FIXED, resumed without an outcome: `, stdout)
	require.Contains(t, stderr, "orders: differences between books and provider: 1\n")
}

// Not to have looked is another thing than to have found something.
func TestReconcile_couldNotLook(t *testing.T) {
	t.Parallel()
	s := newShopAnHourAgo(t)
	for range 101 {
		s.provide(url.Values{"amount": {"500"}, "currency": {"usd"}})
	}
	const notCompared = "orders: books and provider were not compared: "

	code, stdout, stderr := run(t, s.environ, "reconcile")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "Intents of others: 101.\n")

	s.stripe.Inject(stripetest.Rule{Fault: stripetest.NextPageError, Endpoint: listEndpoint, Times: stripetest.Always})
	code, stdout, stderr = run(t, s.environ, "reconcile", "--json")
	require.Equal(t, 2, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, notCompared+"list the provider's intents: payments: ")

	code, _, stderr = run(t, s.with("DATABASE_URL="), "reconcile")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, notCompared+"wrong configuration:\n  DATABASE_URL: not set")

	code, _, stderr = run(t, s.environ, "reconcile", "--since", "5m")
	require.Equal(t, 2, code)
	require.Equal(t, "orders: wrong usage: --since 5m0s is not more than COMPLETER_GRACE, 5m0s, for which orders are left alone\nSee orders help reconcile\n", stderr)
}

// provide makes an intent at the provider that is not ours.
func (s *shop) provide(form url.Values) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost,
		value(s.environ, "STRIPE_API_BASE")+"/v1/payment_intents", strings.NewReader(form.Encode()))
	require.NoError(s.t, err)
	request.Header.Set("Authorization", "Bearer sk_test_somebody_else")
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	require.NoError(s.t, err)
	require.NoError(s.t, response.Body.Close())
	require.Equal(s.t, http.StatusOK, response.StatusCode)
}
