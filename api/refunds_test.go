package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/orders"
	"example.com/orders-api/orders/orderstest"
	"example.com/orders-api/orders/refunds"
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

const refundEndpoint = "POST /v1/refunds"

func (got response) refund(t *testing.T) refunds.Refund { return decode[refunds.Refund](t, got) }

func (f *fixture) createRefund(t *testing.T, order, key, body string, edits ...requestEdit) response {
	t.Helper()
	return f.send(t, http.MethodPost, order+"/refunds", body, append([]requestEdit{header("Idempotency-Key", key)}, edits...)...)
}

func TestClient_refundMembers(t *testing.T) {
	t.Parallel()
	requireMembers(t, map[string]any{"Refund": client.Refund{}})
}

func TestCreateRefund_severalParts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := f.createPaid(t)
	key := newKey()
	part := f.createRefund(t, order, key, `{"amount":1800,"reason":"requested_by_customer"}`)
	require.Equal(t, http.StatusCreated, part.status, "%s", part.body)
	refund := part.refund(t)
	require.Equal(t, order, "/v1/orders/"+refund.OrderID.String())
	require.Equal(t, order+"/refunds/"+refund.ID.String(), part.header.Get("Location"))
	require.EqualValues(t, 1800, refund.Amount)
	require.Equal(t, "requested_by_customer", *refund.Reason)
	require.Equal(t, payments.RefundSucceeded, refund.Status)
	require.Equal(t, map[string]int64{"usd": 2500}, f.Stripe.MoneyMoved())
	after := f.get(t, order).order(t)
	require.Equal(t, orders.StatusPartiallyRefunded, after.Status)
	require.EqualValues(t, 1800, after.AmountRefunded)

	again := f.createRefund(t, order, key, ` {"reason":"requested_by_customer", "amount":1.8e3} `)
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, string(part.body), string(again.body))

	exceeds := f.createRefund(t, order, newKey(), `{"amount":2501}`).problem(t)
	require.Equal(t, "refund-exceeds-remaining", exceeds.slug())
	require.EqualValues(t, 2500, exceeds.Remaining)
	rest := f.createRefund(t, order, newKey(), `{}`).refund(t)
	require.EqualValues(t, 2500, rest.Amount)
	require.Nil(t, rest.Reason)
	require.Equal(t, orders.StatusRefunded, f.get(t, order).order(t).Status)
	require.Equal(t, map[string]int64{"usd": 0}, f.Stripe.MoneyMoved())

	require.Equal(t, string(part.body), string(f.get(t, part.header.Get("Location")).body))
	newest := f.get(t, order+"/refunds/"+rest.ID.String())
	require.JSONEq(t, fmt.Sprintf(`{"data":[%s],"has_more":true}`, newest.body), string(f.get(t, order+"/refunds?limit=1").body))
	require.JSONEq(t, fmt.Sprintf(`{"data":[%s],"has_more":false}`, part.body), string(f.get(t, order+"/refunds?limit=1&after="+rest.ID.String()).body))
	require.JSONEq(t, `{"data":[],"has_more":false}`, string(f.get(t, order+"/refunds?after="+refund.ID.String()).body))
}

func TestCreateRefund_rejected(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := f.createPaid(t)
	unpaid := f.create(t, newKey(), orderBody(withMember("payment_method", "pm_card_visa_chargeDeclined")))
	declined := "/v1/orders/" + unpaid.problem(t).OrderID
	pendingKey, key := newKey(), newKey()
	held, running := f.createHeld(t, pendingKey, orderBody())
	pending := f.getKey(t, pendingKey).keyStatus(t).Order.Href
	before := f.rowCounts(t)
	for name, test := range map[string]struct {
		order, body string
		slug        string
		pointers    []string
	}{
		"unknown order":        {"/v1/orders/" + uuid.NewString(), `{}`, "not-found", nil},
		"not an id":            {"/v1/orders/x", `{}`, "not-found", nil},
		"order is not paid":    {declined, `{}`, "order-not-refundable", nil},
		"more than the order":  {order, `{"amount":4301}`, "refund-exceeds-remaining", nil},
		"several errors":       {order, `{"amount":0,"reason":"x","x":1}`, "validation-failed", []string{"/amount", "/reason", "/x"}},
		"more than 64 KiB":     {order, strings.Repeat(" ", 64<<10) + `{}`, "too-large", nil},
		"the body of an order": {order, orderBody(), "validation-failed", []string{"/currency", "/email", "/items", "/metadata", "/payment_method"}},
	} {
		p := f.createRefund(t, test.order, newKey(), test.body).problem(t)
		require.Equal(t, test.slug, p.slug(), name)
		require.Equal(t, test.pointers, p.pointers(), name)
	}
	tooEarly := f.createRefund(t, pending, key, `{}`)
	require.Equal(t, []any{"order-not-refundable", client.RetrySameKey}, []any{tooEarly.problem(t).slug(), tooEarly.problem(t).Retry})
	require.Equal(t, "1", tooEarly.header.Get("Retry-After"))
	require.Equal(t, before, f.rowCounts(t))
	held.Release()
	require.Equal(t, http.StatusCreated, receive(t, running).status)
	require.Equal(t, http.StatusCreated, f.createRefund(t, pending, key, `{}`).status)
	require.Equal(t, map[string]int64{"usd": 4300}, f.Stripe.MoneyMoved(), "of the first order")
}

func TestCreateRefund_keyReused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	one, other := f.createPaid(t), f.createPaid(t)
	key := newKey()
	require.Equal(t, http.StatusCreated, f.createRefund(t, one, key, `{}`).status)
	require.Equal(t, "idempotency-key-reused", f.createRefund(t, other, key, `{}`).problem(t).slug())
	require.Equal(t, "idempotency-key-reused", f.createRefund(t, one, key, `{"amount":1}`).problem(t).slug())
	require.Equal(t, "idempotency-key-reused", f.create(t, key, orderBody()).problem(t).slug())
	require.Equal(t, map[string]int64{"usd": 4300}, f.Stripe.MoneyMoved())
}

func TestRefunds_otherAccount(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := f.createPaid(t)
	refund := f.createRefund(t, order, newKey(), `{"amount":100}`).header.Get("Location")
	other := f.createPaid(t)
	me := header("Authorization", "Bearer "+f.otherAccount(t))
	for _, path := range []string{order + "/refunds", refund} {
		require.Equal(t, http.StatusOK, f.get(t, path).status)
		require.Equal(t, "not-found", f.get(t, path, me).problem(t).slug())
	}
	require.Equal(t, "not-found", f.createRefund(t, order, newKey(), `{}`, me).problem(t).slug())
	id := strings.TrimPrefix(refund, order+"/refunds/")
	require.Equal(t, "not-found", f.get(t, other+"/refunds/"+id).problem(t).slug(), "a refund of another order")
	require.Equal(t, []string{"/after"}, f.get(t, other+"/refunds?after="+id).problem(t).pointers())
	require.Equal(t, map[string]int64{"usd": 8500}, f.Stripe.MoneyMoved())
}

// A reaped key never executes again, whatever operation uses it (R17). The key of a refund is known by the
// refund and its order.
func TestKeyExpired_ordersAndRefunds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	orderKey, refundKey := newKey(), newKey()
	order := f.create(t, orderKey, orderBody()).header.Get("Location")
	refund := f.createRefund(t, order, refundKey, `{"amount":100}`)
	was := f.getKey(t, refundKey).keyStatus(t)
	require.Equal(t, []string{order, refund.header.Get("Location")}, []string{was.Order.Href, was.Refund.Href})
	idempotencytest.Reap(t, f.Pool)
	require.Equal(t, client.KeyStatus{
		Key: was.Key, State: "expired", Operation: was.Operation, CreatedAt: was.CreatedAt, Order: was.Order, Refund: was.Refund,
	}, f.getKey(t, refundKey).keyStatus(t))
	for name, test := range map[string]struct {
		got      response
		ofRefund bool
	}{
		"the refund again":      {f.createRefund(t, order, refundKey, `{"amount":100}`), true},
		"an order with its key": {f.create(t, refundKey, orderBody()), true},
		"the order again":       {f.create(t, orderKey, orderBody()), false},
		"a refund with its key": {f.createRefund(t, order, orderKey, `{}`), false},
	} {
		p := test.got.problem(t)
		require.Equal(t, "idempotency-key-expired", p.slug(), name)
		require.Equal(t, order, "/v1/orders/"+p.OrderID, name)
		require.Equal(t, test.ofRefund, strings.Contains(string(test.got.body), `"href":"`+refund.header.Get("Location")+`"`), name)
		require.Equal(t, test.ofRefund, strings.Contains(string(test.got.body), `"refund"`), name)
	}
	require.Equal(t, map[string]int64{"usd": 4200}, f.Stripe.MoneyMoved())
	require.Equal(t, 2, f.rowCounts(t)["idempotency_keys"])
}

func TestCreateRefund_inProgress(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order, key := f.createPaid(t), newKey()
	f.Stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: refundEndpoint})
	require.Equal(t, http.StatusServiceUnavailable, f.createRefund(t, order, key, `{}`).status)
	held := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: refundEndpoint})
	first := f.sendAsync(f.request(t, http.MethodPost, order+"/refunds", `{}`, header("Idempotency-Key", key)))
	<-held.Reached()
	require.Equal(t, "idempotency-key-in-progress", f.createRefund(t, order, key, `{}`).problem(t).slug())
	accepted := f.createRefund(t, order, key, `{}`, prefer(respondAsync))
	requireAccepted(t, accepted, key, respondAsync)
	status := accepted.keyStatus(t)
	require.Equal(t, []string{"create_refund", "in_progress", "refund_created"}, []string{status.Operation, status.State, string(status.RecoveryPoint)})
	require.Equal(t, order, status.Order.Href)
	require.Equal(t, payments.RefundPending, f.get(t, status.Refund.Href).refund(t).Status)
	p := f.createRefund(t, order, newKey(), `{}`).problem(t)
	require.Equal(t, []any{"order-not-refundable", client.RetryNever}, []any{p.slug(), p.Retry}, "its amount is reserved")
	held.Release()
	require.Equal(t, http.StatusCreated, receive(t, first).status)
	require.Equal(t, map[string]int64{"usd": 0}, f.Stripe.MoneyMoved())
}

// What the completer has read from the provider is in the order and in its list of refunds. A refund that
// fails days later changes our record, and not the stored response.
func TestGet_changes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order, key := f.createPaid(t, withMember("payment_method", "pm_card_pendingRefund")), newKey()
	require.Equal(t, []payments.Dispute{}, f.get(t, order).order(t).Disputes)
	got := f.createRefund(t, order, key, `{"amount":1800}`)
	refund := got.refund(t)
	require.Equal(t, payments.RefundPending, refund.Status)
	require.NoError(t, f.Stripe.Settle(*refund.ProviderRefundID, false))
	payload, signature, err := f.Stripe.Event(orderstest.WebhookSecret, "refund.failed", *refund.ProviderRefundID)
	require.NoError(t, err)
	received := f.deliver(t, string(payload), signature)
	requireReceived(t, received)
	require.Equal(t, "recorded", f.requestLine(t, received)["outcome"])
	made, err := f.Stripe.RefundAtDashboard(f.intentID(t), 500, "duplicate")
	require.NoError(t, err)
	require.NoError(t, f.Stripe.Settle(made, true))
	dispute, err := f.Stripe.Dispute(f.intentID(t), 700, "product_not_received", "needs_response")
	require.NoError(t, err)
	require.NoError(t, f.Changes.ReadList(t.Context()))
	_, err = f.Changes.Worker().RunOnce(t.Context())
	require.NoError(t, err)

	after := f.get(t, order).order(t)
	require.Equal(t, orders.StatusPartiallyRefunded, after.Status)
	require.EqualValues(t, 500, after.AmountRefunded)
	require.Equal(t, []payments.Dispute{{
		ID: dispute, Status: "needs_response", Amount: 700, Currency: "usd", Reason: "product_not_received",
	}}, after.Disputes)
	list := decode[struct{ Data []refunds.Refund }](t, f.get(t, order+"/refunds")).Data
	require.Len(t, list, 2)
	for _, r := range list {
		if *r.ProviderRefundID == made {
			require.Equal(t, []string{"provider", "duplicate"}, []string{r.Source, *r.Reason})
			require.Nil(t, r.FailureReason)
		} else {
			require.Equal(t, []any{payments.RefundFailed, "expired_or_canceled_card"}, []any{r.Status, *r.FailureReason})
		}
	}
	require.Equal(t, string(got.body), string(f.createRefund(t, order, key, `{"amount":1800}`).body))
}
