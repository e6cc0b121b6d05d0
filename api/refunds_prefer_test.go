package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

// giveBackAsync sends what giveBack sends, and does not wait for the answer.
func (a *app) giveBackAsync(t *testing.T, order, key string, edits ...edit) <-chan outcome {
	t.Helper()
	return a.sendAsync(a.request(t, http.MethodPost, order+"/refunds", `{}`, append([]edit{header("Idempotency-Key", key)}, edits...)...))
}

// Refunds take the same path as orders, so preferences hold for them too.
func TestAClientThatDoesNotWaitForARefund(t *testing.T) {
	t.Parallel()
	a := start(t)
	order, key := a.buy(t), newKey()
	held := a.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: refundEndpoint})
	got := a.giveBack(t, order, key, `{}`, prefer(async))
	requireAccepted(t, got, key, async)
	status := got.keyStatus(t)
	require.Equal(t, []string{"create_refund", "in_progress", "refund_created"}, []string{status.Operation, status.State, status.RecoveryPoint})
	require.Equal(t, order, status.Order.Href)
	require.Equal(t, order, "/v1/orders/"+status.Order.ID.String())
	<-held.Reached()

	tooShort := a.giveBack(t, order, key, `{}`, prefer("wait=1"))
	require.Equal(t, "idempotency-key-in-progress", tooShort.problem(t).slug())
	require.Equal(t, "wait=1", tooShort.header.Get("Preference-Applied"))

	waiting := a.giveBackAsync(t, order, key, prefer("wait=30"))
	a.awaitWaiters(t, 1)
	held.Release()
	done := <-waiting
	require.NoError(t, done.err)
	require.Equal(t, http.StatusCreated, done.status)
	require.Equal(t, "wait=30", done.header.Get("Preference-Applied"))
	require.Equal(t, "true", done.header.Get("Idempotent-Replayed"))
	require.Equal(t, "finished", a.status(t, key).keyStatus(t).State)
	require.Equal(t, map[string]int64{"usd": 0}, a.stripe.MoneyMoved())
}

// Whatever comes of a refund within the wait is the answer.
func TestAClientThatWaitsALittleForARefund(t *testing.T) {
	t.Parallel()
	a := start(t)
	little := prefer(async + ", wait=30")
	elsewhere := a.buy(t)
	a.refundElsewhere(t, a.intentID(t))
	refused := a.giveBack(t, elsewhere, newKey(), `{}`, little)
	require.Equal(t, "payment-refused", refused.problem(t).slug())
	require.Equal(t, "wait=30", refused.header.Get("Preference-Applied"))

	order, key := a.buy(t), newKey()
	limit := a.stripe.Inject(stripetest.Rule{Fault: stripetest.RateLimit, Endpoint: refundEndpoint, Times: stripetest.Always})
	unavailable := a.giveBack(t, order, key, `{}`, little)
	require.Equal(t, "temporarily-unavailable", unavailable.problem(t).slug())
	require.Equal(t, "wait=30", unavailable.header.Get("Preference-Applied"))
	limit.Release()

	held := a.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: refundEndpoint})
	running := a.giveBackAsync(t, order, key, little)
	<-held.Reached()
	a.exec(t, "ALTER TABLE refunds RENAME TO gone")
	held.Release()
	failed := <-running
	require.NoError(t, failed.err)
	require.Equal(t, "internal-error", failed.problem(t).slug())
	require.Equal(t, "wait=30", failed.header.Get("Preference-Applied"))
	a.exec(t, "ALTER TABLE gone RENAME TO refunds")

	require.Equal(t, http.StatusCreated, a.giveBack(t, order, key, `{}`, little).status)
	require.Equal(t, map[string]int64{"usd": 0}, a.stripe.MoneyMoved(), "the one was refunded elsewhere, the other here, once")
}
