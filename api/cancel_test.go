package api_test

import (
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments/stripetest"
)

const cancelEndpoint = "POST /v1/payment_intents/{id}/cancel"

func (f *fixture) cancel(t *testing.T, order, key, body string, edits ...requestEdit) response {
	t.Helper()
	return f.send(t, http.MethodPost, order+"/cancel", body, append([]requestEdit{header("Idempotency-Key", key)}, edits...)...)
}

// createWaiting returns the path of an order whose customer must approve the payment.
func (f *fixture) createWaiting(t *testing.T, key string) (order, intent string) {
	t.Helper()
	got := f.create(t, key, orderBody(withMember("payment_method", authenticatedCard)))
	return got.keyStatus(t).Order.Href, actionOf(t, got).PaymentIntentID
}

func TestCancel(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	orderKey, key := newKey(), newKey()
	order, intent := f.createWaiting(t, orderKey)
	canceled := f.cancel(t, order, key, `{}`)
	require.Equal(t, http.StatusOK, canceled.status, "%s", canceled.body)
	require.Equal(t, orders.StatusPaymentFailed, canceled.order(t).Status)
	require.Equal(t, "canceled", canceled.order(t).Failure.Code)
	require.Empty(t, canceled.header["Location"])
	require.Equal(t, string(f.get(t, order).body), string(canceled.body))
	again := f.cancel(t, order, key, ` { } `)
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, string(canceled.body), string(again.body))
	require.Equal(t, http.StatusOK, f.cancel(t, order, newKey(), `{}`).status, "another cancel")
	require.Error(t, f.Stripe.Authenticate(intent, true))

	own := f.create(t, orderKey, orderBody(withMember("payment_method", authenticatedCard)))
	require.Equal(t, []any{"payment-refused", "canceled", client.RetryNewKey}, []any{own.problem(t).slug(), own.problem(t).Code, own.problem(t).Retry})

	// The key of a cancel names the order, and nothing that it created.
	status := f.getKey(t, key).keyStatus(t)
	require.Equal(t, []any{"finished", "cancel_order", http.StatusOK, client.Nullable("")}, []any{status.State, status.Operation, status.Response.Status, status.Response.Location})
	require.Equal(t, order, status.Order.Href)
	require.Nil(t, status.Refund)
	require.Equal(t, 3, idempotencytest.Reap(t, f.Pool))
	require.Equal(t, order, f.getKey(t, key).keyStatus(t).Order.Href)
	expired := f.cancel(t, order, key, `{}`).problem(t)
	require.Equal(t, "idempotency-key-expired", expired.slug())
	require.Equal(t, order, "/v1/orders/"+expired.OrderID)
	require.Empty(t, f.Stripe.Charges())
}

func TestCancel_rejected(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	paid := f.createPaid(t)
	used := newKey()
	waiting, _ := f.createWaiting(t, used)
	before := f.rowCounts(t)
	for name, test := range map[string]struct{ order, key, body, slug string }{
		"unknown order":    {"/v1/orders/" + uuid.NewString(), newKey(), `{}`, "not-found"},
		"not an id":        {"/v1/orders/x", newKey(), `{}`, "not-found"},
		"paid":             {paid, newKey(), `{}`, "order-not-cancelable"},
		"members":          {waiting, newKey(), `{"reason":"late"}`, "validation-failed"},
		"not an object":    {waiting, newKey(), `[]`, "malformed-request"},
		"key of the order": {waiting, used, `{}`, "idempotency-key-reused"},
	} {
		p := f.cancel(t, test.order, test.key, test.body).problem(t)
		require.Equal(t, test.slug, p.slug(), name)
	}
	p := f.cancel(t, paid, newKey(), `{}`).problem(t)
	require.Equal(t, []any{paid, client.RetryNever, client.OutcomeNone}, []any{"/v1/orders/" + p.OrderID, p.Retry, p.Outcome})
	require.Equal(t, "not-found", f.cancel(t, waiting, newKey(), `{}`, header("Authorization", "Bearer "+f.otherAccount(t))).problem(t).slug())
	require.Equal(t, before, f.rowCounts(t))
}

// A cancel that the customer's approval precedes stores its problem, and one that is not decided yet stores
// nothing.
func TestCancel_paidMeanwhile(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order, intent := f.createWaiting(t, newKey())
	key := newKey()
	f.Stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: cancelEndpoint})
	unknown := f.cancel(t, order, key, `{}`)
	require.Equal(t, []any{"payment-outcome-unknown", client.OutcomeUnknown}, []any{unknown.problem(t).slug(), unknown.problem(t).Outcome})
	require.Equal(t, "60", unknown.header.Get("Retry-After"))
	require.EqualValues(t, "cancel_requested", f.getKey(t, key).keyStatus(t).RecoveryPoint)

	held := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldArrival, Endpoint: cancelEndpoint})
	requireAccepted(t, f.cancel(t, order, key, `{}`, prefer(respondAsync)), key, respondAsync)
	<-held.Reached()
	require.Equal(t, "idempotency-key-in-progress", f.cancel(t, order, key, `{}`).problem(t).slug())
	require.NoError(t, f.Stripe.Authenticate(intent, true))
	held.Release()
	require.Equal(t, http.StatusUnprocessableEntity, f.awaitFinished(t, key).Response.Status)
	stored := f.cancel(t, order, key, `{}`)
	require.Equal(t, "true", stored.header.Get("Idempotent-Replayed"))
	p := stored.problem(t)
	require.Equal(t, []any{"order-not-cancelable", client.RetryNever, client.OutcomeFinal}, []any{p.slug(), p.Retry, p.Outcome})
	require.Equal(t, order, "/v1/orders/"+p.OrderID)
	require.Equal(t, string(stored.body), string(f.cancel(t, order, key, `{}`).body))
	require.Equal(t, orders.StatusPaid, f.get(t, order).order(t).Status)
	require.Len(t, f.Stripe.Charges(), 1)
}
