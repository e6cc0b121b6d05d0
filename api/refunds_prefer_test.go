package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

// createRefundAsync is createRefund without waiting for the response.
func (f *fixture) createRefundAsync(t *testing.T, order, key string, edits ...requestEdit) <-chan asyncResponse {
	t.Helper()
	return f.sendAsync(f.request(t, http.MethodPost, order+"/refunds", `{}`, append([]requestEdit{header("Idempotency-Key", key)}, edits...)...))
}

func TestCreateRefund_respondAsync(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order, key := f.createPaid(t), newKey()
	held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: refundEndpoint})
	got := f.createRefund(t, order, key, `{}`, prefer(respondAsync))
	requireAccepted(t, got, key, respondAsync)
	status := got.keyStatus(t)
	require.Equal(t, []string{"create_refund", "in_progress", "refund_created"}, []string{status.Operation, status.State, status.RecoveryPoint})
	require.Equal(t, order, status.Order.Href)
	require.Equal(t, order, "/v1/orders/"+status.Order.ID.String())
	require.Equal(t, order+"/refunds/"+status.Refund.ID.String(), status.Refund.Href)
	require.Equal(t, http.StatusOK, f.get(t, status.Refund.Href).status)
	<-held.Reached()

	tooShort := f.createRefund(t, order, key, `{}`, prefer("wait=1"))
	require.Equal(t, "idempotency-key-in-progress", tooShort.problem(t).slug())
	require.Equal(t, "wait=1", tooShort.header.Get("Preference-Applied"))

	waiting := f.createRefundAsync(t, order, key, prefer("wait=30"))
	f.awaitWaiters(t, 1)
	held.Release()
	done := <-waiting
	require.NoError(t, done.err)
	require.Equal(t, http.StatusCreated, done.status)
	require.Equal(t, "wait=30", done.header.Get("Preference-Applied"))
	require.Equal(t, "true", done.header.Get("Idempotent-Replayed"))
	require.Equal(t, "finished", f.getKey(t, key).keyStatus(t).State)
	require.Equal(t, map[string]int64{"usd": 0}, f.stripe.MoneyMoved())
}

// The response is the result of the refund, or its problem, if that is known within the
// wait.
func TestCreateRefund_respondAsyncAndWait(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	asyncAndWait := prefer(respondAsync + ", wait=30")
	refundedThere := f.createPaid(t)
	f.refundAtProvider(t, f.intentID(t))
	refused := f.createRefund(t, refundedThere, newKey(), `{}`, asyncAndWait)
	require.Equal(t, "payment-refused", refused.problem(t).slug())
	require.Equal(t, "wait=30", refused.header.Get("Preference-Applied"))

	order, key := f.createPaid(t), newKey()
	limit := f.stripe.Inject(stripetest.Rule{Fault: stripetest.RateLimit, Endpoint: refundEndpoint, Times: stripetest.Always})
	unavailable := f.createRefund(t, order, key, `{}`, asyncAndWait)
	require.Equal(t, "temporarily-unavailable", unavailable.problem(t).slug())
	require.Equal(t, "wait=30", unavailable.header.Get("Preference-Applied"))
	limit.Release()

	held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: refundEndpoint})
	running := f.createRefundAsync(t, order, key, asyncAndWait)
	<-held.Reached()
	f.exec(t, "ALTER TABLE refunds RENAME TO gone")
	held.Release()
	failed := <-running
	require.NoError(t, failed.err)
	require.Equal(t, "internal-error", failed.problem(t).slug())
	require.Equal(t, "wait=30", failed.header.Get("Preference-Applied"))
	f.exec(t, "ALTER TABLE gone RENAME TO refunds")

	require.Equal(t, http.StatusCreated, f.createRefund(t, order, key, `{}`, asyncAndWait).status)
	require.Equal(t, map[string]int64{"usd": 0}, f.stripe.MoneyMoved(), "both are refunded once")
}
