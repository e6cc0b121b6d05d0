package orders_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
)

const (
	refundEndpoint      = "POST /v1/refunds"
	listRefundsEndpoint = "GET /v1/refunds"

	pendingRefund = "pm_card_pendingRefund"
	refundFail    = "pm_card_refundFail"
)

// paidOrder is a paid order. Its methods refund it, each under the given key.
type paidOrder struct {
	*fixture
	orderID  uuid.UUID
	intentID string
}

// createPaid creates an order under the fixture's key, paid with that card.
func (f *fixture) createPaid(paymentMethod string) *paidOrder {
	f.t.Helper()
	require.Equal(f.t, "201", outcomeOf(f.create(paymentMethod)))
	o := f.getOrder()
	f.transport.reset()
	return &paidOrder{f, o.ID, *o.PaymentIntentID}
}

func refundRequest(t testing.TB, account, order uuid.UUID, key idempotency.Key, body string) orders.Request {
	t.Helper()
	params, err := idempotency.Canonicalize([]byte(body))
	require.NoError(t, err)
	return orders.Request{
		Request: idempotency.Request{
			AccountID: account,
			Key:       key,
			Method:    http.MethodPost,
			Path:      "/v1/orders/" + order.String() + "/refunds",
			Params:    params,
		},
		ClientIP: clientIP,
	}
}

// createRefund sends the request of a refund, as a client does.
func (p *paidOrder) createRefund(key idempotency.Key, body string) (idempotency.Result, error) {
	p.t.Helper()
	return p.service.Refund(p.t.Context(), p.orderID, refundRequest(p.t, p.account, p.orderID, key, body))
}

// resumeRefund resumes the key, as the completer does.
func (p *paidOrder) resumeRefund(key idempotency.Key) (idempotency.Result, error) {
	p.t.Helper()
	return p.service.Resume(p.t.Context(), p.account, idempotency.KeyID(p.account, key))
}

func (p *paidOrder) getRefund(key idempotency.Key) orders.Refund {
	p.t.Helper()
	r, err := p.service.GetRefund(p.t.Context(), p.account, p.orderID, refundID(p.account, key))
	require.NoError(p.t, err)
	return r
}

func refundID(account uuid.UUID, key idempotency.Key) uuid.UUID {
	return idempotency.DeriveID("refund", account, key)
}

// refundAtProvider refunds the intent without our service, as on the provider's
// dashboard.
func (p *paidOrder) refundAtProvider(form url.Values) {
	p.t.Helper()
	form.Set("payment_intent", p.intentID)
	req := httptest.NewRequestWithContext(p.t.Context(), http.MethodPost, "/v1/refunds", strings.NewReader(form.Encode()))
	req.Header.Set("Authorization", "Bearer sk_test_dashboard")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	recorder := httptest.NewRecorder()
	p.stripe.ServeHTTP(recorder, req)
	require.Equal(p.t, http.StatusOK, recorder.Code, recorder.Body.String())
}

// summary describes the order and its refunds as we record them, and at the end the
// amount that the provider has refunded.
func (p *paidOrder) summary() string {
	p.t.Helper()
	o, err := p.service.Get(p.t.Context(), p.account, p.orderID)
	require.NoError(p.t, err)
	refunds, err := collect(p.service.ListRefunds(p.t.Context(), p.account, p.orderID, 100, uuid.Nil))
	require.NoError(p.t, err)
	words := []string{fmt.Sprintf("%s %d", o.Status, o.AmountRefunded)}
	for _, r := range refunds {
		words = append(words, fmt.Sprintf("%s %d", r.Status, r.Amount))
	}
	return strings.Join(words, ", ") + fmt.Sprintf("; %d", p.stripe.ChargesByOrder(p.orderID.String())[0].Refunded)
}

// checkRefundInvariants checks the invariants of refunds once no run is active,
// provided that only our service made refunds.
func checkRefundInvariants(t *testing.T, f *fixture) {
	t.Helper()
	require.Empty(t, f.transport.violations(), "while a call to the provider was sent (R6)")
	require.Empty(t, f.stripe.RefundedTwice())
	checkProviderKeys(t, f.stripe.Requests())

	for _, charge := range f.stripe.Charges() {
		require.LessOrEqual(t, charge.Refunded, charge.Amount)
		require.Equal(t, 1, f.count(`
SELECT count(*)
  FROM orders o
 WHERE o.id = $1
   AND o.amount_refunded = $2
   AND o.amount_refunded = (SELECT coalesce(sum(amount), 0) FROM refunds r WHERE r.order_id = o.id AND r.status NOT IN ('failed', 'canceled'))
   AND o.status = CASE WHEN $2 = 0 THEN 'paid' WHEN $2 = o.amount THEN 'refunded' ELSE 'partially_refunded' END`,
			charge.OrderID, charge.Refunded), "order %s, of which %d was refunded", charge.OrderID, charge.Refunded)
	}
	for _, made := range f.stripe.Refunds() {
		require.Equal(t, 1, f.count(`
SELECT count(*)
  FROM refunds r
  JOIN orders o ON o.account_id = r.account_id AND o.id = r.order_id
 WHERE r.id = $1::uuid
   AND r.provider_refund_id = $2
   AND r.amount = $3
   AND r.currency = $4
   AND r.status = $5
   AND o.payment_intent_id = $6`, made.Name, made.ID, made.Amount, made.Currency, made.Status, made.IntentID), "refund %s", made.ID)
	}
	require.Equal(t, len(f.stripe.Refunds()), f.count("SELECT count(*) FROM refunds WHERE provider_refund_id IS NOT NULL"))
	require.Zero(t, f.count("SELECT count(*) FROM refunds WHERE provider_refund_id IS NULL AND status <> 'failed'"))
	require.Zero(t, f.count(`
SELECT count(*)
  FROM refunds r
  JOIN idempotency_keys k ON k.account_id = r.account_id AND k.idempotency_key = r.idempotency_key
 WHERE (k.response_code = 201) <> (r.provider_refund_id IS NOT NULL)
   AND r.status NOT IN ('failed', 'canceled')`), "a refund that is not void has response 201")
	require.Zero(t, f.count("SELECT count(*) FROM refunds r WHERE 1 <> (SELECT count(*) FROM audit_records a WHERE a.resource_id = r.id::text AND a.action = 'refund.created')"))
}

// expireProviderKeys makes the provider's idempotency keys expire: a day passes there,
// and for our refunds.
func (f *fixture) expireProviderKeys() {
	f.t.Helper()
	const age = 25 * time.Hour
	f.stripe.Advance(age)
	f.exec("UPDATE refunds SET created_at = created_at - $1::interval, provider_failed_at = provider_failed_at - $1::interval", age)
}
