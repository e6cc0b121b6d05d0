package orderstest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/orders/refunds"
	"example.com/orders-api/payments/stripetest"
)

// Refund executes POST /v1/orders/{id}/refunds without HTTP.
func (s *Shop) Refund(ctx context.Context, req idempotency.Request) (idempotency.Result, error) {
	return s.Engine.Do(ctx, req, s.Refunds.Operation())
}

// A refund of a part of an order.
const (
	OneRefund = idempotency.Key("the-key-of-one-refund")
	OneBody   = `{"amount":1800,"reason":"duplicate"}`
)

// RefundRequest returns the request of a refund.
func RefundRequest(t testing.TB, account, order uuid.UUID, key idempotency.Key, body string) idempotency.Request {
	t.Helper()
	params, err := idempotency.Canonicalize([]byte(body))
	require.NoError(t, err)
	return idempotency.Request{
		AccountID: account, Key: key, Method: http.MethodPost, Path: "/v1/orders/" + order.String() + "/refunds", Params: params,
	}
}

// RefundOrder sends a refund of the order.
func (f *Fixture) RefundOrder(key idempotency.Key, body string) (idempotency.Result, error) {
	f.T.Helper()
	order := OrderID(f.Account, f.Key)
	return f.Refund(f.T.Context(), RefundRequest(f.T, f.Account, order, key, body))
}

// GetRefund reads a refund.
func (f *Fixture) GetRefund(key idempotency.Key) refunds.Refund {
	f.T.Helper()
	r, err := f.Refunds.Get(f.T.Context(), f.Account, OrderID(f.Account, f.Key), RefundID(f.Account, key))
	require.NoError(f.T, err)
	return r
}

// RefundID returns the id of the refund of a key.
func RefundID(account uuid.UUID, key idempotency.Key) uuid.UUID {
	return idempotency.DeriveID("refund", account, key)
}

// Summary describes our records of the order and its refunds, and what the provider has refunded.
func (f *Fixture) Summary() string {
	f.T.Helper()
	o := f.GetOrder()
	list, err := f.Refunds.List(f.T.Context(), f.Account, o.ID, httpjson.Page{Limit: 100})
	require.NoError(f.T, err)
	words := []string{fmt.Sprintf("%s %d", o.Status, o.AmountRefunded)}
	for _, r := range list {
		words = append(words, fmt.Sprintf("%s %d", r.Status, r.Amount))
	}
	return strings.Join(words, ", ") + fmt.Sprintf("; %d", f.Stripe.ChargesByOrder(o.ID.String())[0].Refunded)
}

// ExpectSummary requires a summary.
func ExpectSummary(want string) Step {
	return func(f *Fixture) { require.Equal(f.T, want, f.Summary()) }
}

// CheckRefundInvariants is for tests in which only our service makes refunds.
func CheckRefundInvariants(t *testing.T, f *Fixture) {
	t.Helper()
	require.Empty(t, f.Transport.Violations())
	CheckProviderKeys(t, f.Stripe.Requests())

	for _, charge := range f.Stripe.Charges() {
		require.LessOrEqual(t, charge.Refunded, charge.Amount)
		require.Equal(t, 1, f.Count(`
SELECT count(*)
  FROM orders o
 WHERE o.id = $1
   AND o.amount_refunded = $2
   AND o.amount_refunded = (SELECT coalesce(sum(amount), 0) FROM refunds r WHERE r.account_id = o.account_id AND r.order_id = o.id AND r.status NOT IN ('failed', 'canceled'))
   AND o.status = CASE WHEN $2 = 0 THEN 'paid' WHEN $2 = o.amount THEN 'refunded' ELSE 'partially_refunded' END`,
			charge.OrderID, charge.Refunded), "order %s, of which %d was refunded", charge.OrderID, charge.Refunded)
	}
	for _, made := range f.Stripe.Refunds() { // a row has one of them, so none was made twice
		require.Equal(t, 1, f.Count(`
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
	require.Equal(t, len(f.Stripe.Refunds()), f.Count("SELECT count(*) FROM refunds WHERE provider_refund_id IS NOT NULL"))
	require.Zero(t, f.Count("SELECT count(*) FROM refunds WHERE provider_refund_id IS NULL AND status <> 'failed'"))
	require.Zero(t, f.Count(`
SELECT count(*)
  FROM refunds r
  JOIN idempotency_keys k ON k.account_id = r.account_id AND k.idempotency_key = r.idempotency_key
 WHERE (k.response_code = 201) <> (r.provider_refund_id IS NOT NULL)
   AND r.status NOT IN ('failed', 'canceled')`), "a refund that is not void has response 201")
	require.Zero(t, f.Count("SELECT count(*) FROM refunds r WHERE 1 <> (SELECT count(*) FROM audit_records a WHERE a.account_id = r.account_id AND a.resource_id = r.id::text AND a.action = 'refund.created')"))
}

// ExpireProviderKeys lets a day pass, after which the provider has forgotten our keys.
func ExpireProviderKeys(f *Fixture) {
	f.T.Helper()
	const age = 25 * time.Hour
	f.Stripe.Advance(age)
	f.Exec("UPDATE refunds SET created_at = created_at - $1::interval, provider_failed_at = provider_failed_at - $1::interval, provider_sent_at = provider_sent_at - $1::interval", age)
}

// Refund refunds a part of the order.
func Refund(want string) Step {
	return func(f *Fixture) {
		f.T.Helper()
		f.Request(want, f.RefundKey(), func(f *Fixture) (idempotency.Result, error) { return f.RefundOrder(f.RefundKey(), OneBody) })
	}
}

// RefundKey is the key of that refund.
func (f *Fixture) RefundKey() idempotency.Key { return f.Key + "-refund" }

// RefundAtProvider is another program's refund, with more parameters.
func RefundAtProvider(parameters ...string) Step {
	return func(f *Fixture) {
		f.OutOfBand("/v1/refunds", append([]string{"payment_intent", *f.GetOrder().PaymentIntentID}, parameters...)...)
	}
}

// LoseRefunds leaves the state after a failover that lost all rows of refunds.
func LoseRefunds(f *Fixture) {
	f.Exec("DELETE FROM refunds")
	f.Exec("DELETE FROM idempotency_keys WHERE operation = 'create_refund'")
	f.Exec("DELETE FROM audit_records WHERE resource_type = 'refund'")
	f.Exec("UPDATE orders SET amount_refunded = 0, status = 'paid'")
}

// SecondListUnavailable lets a run read the list of refunds once, but not after its call.
func SecondListUnavailable(f *Fixture) {
	f.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Endpoint: ListRefunds, Times: stripetest.Always, After: 1})
}
