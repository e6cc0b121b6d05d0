package orders_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/orders/refunds"
)

const (
	pendingRefund = "pm_card_pendingRefund"

	oneRefund = idempotency.Key("the-key-of-one-refund")
	oneBody   = `{"amount":1800,"reason":"duplicate"}`
)

func refundRequest(t testing.TB, account, order uuid.UUID, key idempotency.Key, body string) idempotency.Request {
	t.Helper()
	params, err := idempotency.Canonicalize([]byte(body))
	require.NoError(t, err)
	return idempotency.Request{
		AccountID: account, Key: key, Method: http.MethodPost, Path: "/v1/orders/" + order.String() + "/refunds", Params: params,
	}
}

func (f *fixture) refund(key idempotency.Key, body string) (idempotency.Result, error) {
	f.t.Helper()
	order := orderID(f.Account, f.key)
	return f.Refund(f.t.Context(), refundRequest(f.t, f.Account, order, key, body))
}

func (f *fixture) getRefund(key idempotency.Key) refunds.Refund {
	f.t.Helper()
	r, err := f.Refunds.Get(f.t.Context(), f.Account, orderID(f.Account, f.key), refundID(f.Account, key))
	require.NoError(f.t, err)
	return r
}

func refundID(account uuid.UUID, key idempotency.Key) uuid.UUID {
	return idempotency.DeriveID("refund", account, key)
}

func (f *fixture) summary() string {
	f.t.Helper()
	o := f.getOrder()
	list, err := f.Refunds.List(f.t.Context(), f.Account, o.ID, httpjson.Page{Limit: 100})
	require.NoError(f.t, err)
	words := []string{fmt.Sprintf("%s %d", o.Status, o.AmountRefunded)}
	for _, r := range list {
		words = append(words, fmt.Sprintf("%s %d", r.Status, r.Amount))
	}
	return strings.Join(words, ", ") + fmt.Sprintf("; %d", f.Stripe.ChargesByOrder(o.ID.String())[0].Refunded)
}

func expectSummary(want string) step {
	return func(f *fixture) { require.Equal(f.t, want, f.summary()) }
}

// checkRefundInvariants is for tests in which only our service makes refunds.
func checkRefundInvariants(t *testing.T, f *fixture) {
	t.Helper()
	require.Empty(t, f.transport.violations())
	checkProviderKeys(t, f.Stripe.Requests())

	for _, charge := range f.Stripe.Charges() {
		require.LessOrEqual(t, charge.Refunded, charge.Amount)
		require.Equal(t, 1, f.count(`
SELECT count(*)
  FROM orders o
 WHERE o.id = $1
   AND o.amount_refunded = $2
   AND o.amount_refunded = (SELECT coalesce(sum(amount), 0) FROM refunds r WHERE r.account_id = o.account_id AND r.order_id = o.id AND r.status NOT IN ('failed', 'canceled'))
   AND o.status = CASE WHEN $2 = 0 THEN 'paid' WHEN $2 = o.amount THEN 'refunded' ELSE 'partially_refunded' END`,
			charge.OrderID, charge.Refunded), "order %s, of which %d was refunded", charge.OrderID, charge.Refunded)
	}
	for _, made := range f.Stripe.Refunds() { // a row has one of them, so none was made twice
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
	require.Equal(t, len(f.Stripe.Refunds()), f.count("SELECT count(*) FROM refunds WHERE provider_refund_id IS NOT NULL"))
	require.Zero(t, f.count("SELECT count(*) FROM refunds WHERE provider_refund_id IS NULL AND status <> 'failed'"))
	require.Zero(t, f.count(`
SELECT count(*)
  FROM refunds r
  JOIN idempotency_keys k ON k.account_id = r.account_id AND k.idempotency_key = r.idempotency_key
 WHERE (k.response_code = 201) <> (r.provider_refund_id IS NOT NULL)
   AND r.status NOT IN ('failed', 'canceled')`), "a refund that is not void has response 201")
	require.Zero(t, f.count("SELECT count(*) FROM refunds r WHERE 1 <> (SELECT count(*) FROM audit_records a WHERE a.account_id = r.account_id AND a.resource_id = r.id::text AND a.action = 'refund.created')"))
}

func (f *fixture) expireProviderKeys() {
	f.t.Helper()
	f.Stripe.Advance(age)
	f.exec("UPDATE refunds SET created_at = created_at - $1::interval, provider_failed_at = provider_failed_at - $1::interval, provider_sent_at = provider_sent_at - $1::interval", age)
}

func refund(want string) step {
	return func(f *fixture) {
		f.t.Helper()
		f.sentKey = f.refundKey()
		f.send = func(f *fixture) (idempotency.Result, error) { return f.refund(f.refundKey(), oneBody) }
		f.expect(want, f.send)
	}
}

func (f *fixture) refundKey() idempotency.Key { return f.key + "-refund" }

func refundAtProvider(parameters ...string) step {
	return func(f *fixture) {
		form := url.Values{"payment_intent": {*f.getOrder().PaymentIntentID}}
		for i := 0; i < len(parameters); i += 2 {
			form.Set(parameters[i], parameters[i+1])
		}
		f.outOfBand("/v1/refunds", form)
	}
}
