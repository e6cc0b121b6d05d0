package main_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/payments/stripetest"
)

// paidOrder returns a paid order whose receipt was sent, and the commands that erase it and that refuse to.
func (f *fixture) paidOrder(key string) (id string, erase, refuse func() string) {
	f.t.Helper()
	id = programtest.RequirePaid(f.t, f.shared().MustOrder(key, programtest.Tea))
	programtest.Succeed(f.t, f.with("SMTP_URL=smtp://"+programtest.NewMailServer(f.t, "").Address), "worker", "--once")
	args := []string{"erase", "--account", f.account().String(), "--order", id}
	erase = func() string {
		f.t.Helper()
		stdout, _ := programtest.Succeed(f.t, f.quiet(), args...)
		return stdout
	}
	refuse = func() string {
		f.t.Helper()
		stderr := programtest.Fail(f.t, f.quiet(), args...)
		require.Equal(f.t, 1, f.count("SELECT count(email) FROM orders WHERE id = $1", id), "nothing is erased")
		return stderr
	}
	return id, erase, refuse
}

// A success means that no row of the order has the personal data any more. So a key that another session has
// locked is waited for, and not skipped.
func TestErase_lockedKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, erase, refuse := f.paidOrder("an-order-to-erase-1")
	other, err := f.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = other.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = other.Exec(t.Context(), "SELECT FROM idempotency_keys FOR UPDATE")
	require.NoError(t, err)
	require.Contains(t, refuse(), "lock timeout")

	require.NoError(t, other.Rollback(t.Context()))
	erase()
	require.Zero(t, f.count("SELECT count(*) FROM idempotency_keys WHERE expired_at IS NULL"))
	require.Zero(t, f.count("SELECT count(email) FROM orders"))
}

// While a dispute may be open that our records do not show, the data is its evidence.
func TestErase_unreadDispute(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, erase, refuse := f.paidOrder("an-order-to-dispute-1")
	intent := f.stripe.Charges()[0].IntentID
	dispute, err := f.stripe.Dispute(intent, 2500, "fraudulent", "needs_response")
	require.NoError(t, err)
	unreadable := f.stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Endpoint: "GET /v1/disputes", Times: stripetest.Always})
	programtest.Run(t, f.environ, "worker", "--once")
	require.Contains(t, refuse(), "a provider_change of it is queued, failed or not acknowledged")
	f.exec("UPDATE staged_jobs SET failed_at = now()")
	require.Contains(t, refuse(), "a provider_change of it is queued, failed or not acknowledged")

	unreadable.Release()
	programtest.Succeed(t, f.environ, "jobs", "retry", "all", "--reason", "a test")
	programtest.Succeed(t, f.environ, "worker", "--once")
	require.Contains(t, refuse(), "a dispute about it is open")
	require.NoError(t, f.stripe.UpdateDispute(dispute, "won"))
	programtest.Succeed(t, f.environ, "worker", "--once")
	erase()
}

func TestErase_discrepancy(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id, erase, refuse := f.paidOrder("an-order-to-erase-2")
	for _, column := range []string{"id", "payment_intent_id"} { // found by reconcile with another order's id, too
		name := map[string]string{"id": "order_id", "payment_intent_id": "intent_id"}[column]
		f.exec(`INSERT INTO staged_jobs (account_id, id, kind, args, last_error, failed_at)
SELECT account_id, gen_random_uuid(), 'discrepancy', jsonb_build_object('` + name + `', ` + column + `), 'unrecorded_charge', now() FROM orders`)
		require.Contains(t, refuse(), "a discrepancy of it is queued, failed or not acknowledged")
		var found string
		require.NoError(t, f.pool.QueryRow(t.Context(), "SELECT id::text FROM staged_jobs WHERE acknowledged_at IS NULL").Scan(&found))
		programtest.Succeed(t, f.quiet(), "jobs", "delete", found, "--reason", "refunded by bank transfer")
	}
	require.True(t, strings.HasPrefix(erase(), "The personal data of order "+id+" is erased"))
}
