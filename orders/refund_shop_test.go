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

// sale is a paid order of a shop, of which the methods give back: each under the
// key that they are told.
type sale struct {
	*shop
	order  uuid.UUID
	intent string
}

// sell makes a sale under the shop's key, to that card.
func (s *shop) sell(paymentMethod string) *sale {
	s.t.Helper()
	require.Equal(s.t, "201", say(s.buy(paymentMethod)))
	o := s.order()
	s.wire.forget()
	return &sale{s, o.ID, *o.PaymentIntentID}
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

// giveBack asks for a refund, as a client does when it retries.
func (s *sale) giveBack(key idempotency.Key, body string) (idempotency.Result, error) {
	s.t.Helper()
	return s.service.Refund(s.t.Context(), s.order, refundRequest(s.t, s.account, s.order, key, body))
}

// takeUpRefund goes on with it, as the completer does.
func (s *sale) takeUpRefund(key idempotency.Key) (idempotency.Result, error) {
	s.t.Helper()
	return s.service.Resume(s.t.Context(), s.account, idempotency.KeyID(s.account, key))
}

// refund reads it.
func (s *sale) refund(key idempotency.Key) orders.Refund {
	s.t.Helper()
	r, err := s.service.GetRefund(s.t.Context(), s.account, s.order, refundOf(s.account, key))
	require.NoError(s.t, err)
	return r
}

func refundOf(account uuid.UUID, key idempotency.Key) uuid.UUID {
	return idempotency.DeriveID("refund", account, key)
}

// refundElsewhere gives the intent's money back without us, as on the provider's
// own pages.
func (s *sale) refundElsewhere(form url.Values) {
	s.t.Helper()
	form.Set("payment_intent", s.intent)
	req := httptest.NewRequestWithContext(s.t.Context(), http.MethodPost, "/v1/refunds", strings.NewReader(form.Encode()))
	req.Header.Set("Authorization", "Bearer sk_test_dashboard")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	recorder := httptest.NewRecorder()
	s.stripe.ServeHTTP(recorder, req)
	require.Equal(s.t, http.StatusOK, recorder.Code, recorder.Body.String())
}

// standing is the order and its refunds in words: what the books say, and at the
// end what the provider has given back.
func (s *sale) standing() string {
	s.t.Helper()
	o, err := s.service.Get(s.t.Context(), s.account, s.order)
	require.NoError(s.t, err)
	refunds, more, err := s.service.ListRefunds(s.t.Context(), s.account, s.order, orders.MaxPage, uuid.Nil)
	require.NoError(s.t, err)
	require.False(s.t, more)
	words := []string{fmt.Sprintf("%s %d", o.Status, o.AmountRefunded)}
	for _, r := range refunds {
		words = append(words, fmt.Sprintf("%s %d", r.Status, r.Amount))
	}
	return strings.Join(words, ", ") + fmt.Sprintf("; %d", s.stripe.ChargesByOrder(s.order.String())[0].Refunded)
}

// checkRefunds asks for the invariants of refunds in a shop in which nothing is
// under way any more and nobody else gave money back.
func checkRefunds(t *testing.T, s *shop) {
	t.Helper()
	require.Empty(t, s.wire.wrong(), "R6, seen when a request left")
	require.Empty(t, s.stripe.RefundedTwice())
	checkProviderKeys(t, s.stripe.Requests())

	for _, charge := range s.stripe.Charges() {
		require.LessOrEqual(t, charge.Refunded, charge.Amount)
		require.Equal(t, 1, s.count(`
SELECT count(*)
  FROM orders o
 WHERE o.id = $1
   AND o.amount_refunded = $2
   AND o.amount_refunded = (SELECT coalesce(sum(amount), 0) FROM refunds r WHERE r.order_id = o.id AND r.status NOT IN ('failed', 'canceled'))
   AND o.status = CASE WHEN $2 = 0 THEN 'paid' WHEN $2 = o.amount THEN 'refunded' ELSE 'partially_refunded' END`,
			charge.OrderID, charge.Refunded), "order %s, of which %d was given back", charge.OrderID, charge.Refunded)
	}
	for _, made := range s.stripe.Refunds() {
		require.Equal(t, 1, s.count(`
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
	require.Equal(t, len(s.stripe.Refunds()), s.count("SELECT count(*) FROM refunds WHERE provider_refund_id IS NOT NULL"))
	require.Zero(t, s.count("SELECT count(*) FROM refunds WHERE provider_refund_id IS NULL AND status <> 'failed'"))
	require.Zero(t, s.count(`
SELECT count(*)
  FROM refunds r
  JOIN idempotency_keys k ON k.account_id = r.account_id AND k.idempotency_key = r.idempotency_key
 WHERE (k.response_code = 201) <> (r.provider_refund_id IS NOT NULL)
   AND r.status NOT IN ('failed', 'canceled')`), "a refund that stands answers 201")
	require.Zero(t, s.count("SELECT count(*) FROM refunds r WHERE 1 <> (SELECT count(*) FROM audit_records a WHERE a.resource_id = r.id::text AND a.action = 'refund.created')"))
}

// forgetKeys lets the provider forget every key, and us be as old.
func (s *shop) forgetKeys() {
	s.t.Helper()
	const age = 25 * time.Hour
	s.stripe.Advance(age)
	s.exec("UPDATE refunds SET created_at = created_at - $1::interval, provider_failed_at = provider_failed_at - $1::interval", age)
}
