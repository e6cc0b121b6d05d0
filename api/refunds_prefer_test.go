package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

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
	done := receive(t, waiting)
	require.Equal(t, http.StatusCreated, done.status)
	require.Equal(t, "wait=30", done.header.Get("Preference-Applied"))
	require.Equal(t, "true", done.header.Get("Idempotent-Replayed"))
	require.Equal(t, "finished", f.getKey(t, key).keyStatus(t).State)
	require.Equal(t, map[string]int64{"usd": 0}, f.stripe.MoneyMoved())
}
