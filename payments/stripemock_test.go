package payments_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest/stripemock"
)

// Stripe's own check of our requests. stripe-mock keeps no state, so what it
// answers is not looked at, only that it takes each request.
func TestStripeMockTakesEveryRequest(t *testing.T) {
	t.Parallel()
	var taken []string
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	client := newClient(t, stripemock.Start(t), func(cfg *payments.Config) {
		cfg.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := base.RoundTrip(r)
			if err == nil {
				taken = append(taken, r.Method+" "+r.URL.Path+" "+strconv.Itoa(resp.StatusCode))
			}
			return resp, err
		})
	})

	// One send each: without state none of the answers is ours.
	_, _ = client.Create(t.Context(), createKey, asked)
	_, _ = client.Confirm(t.Context(), confirmKey, "pi_1")
	_, _ = client.Get(t.Context(), "pi_1")
	_, _ = client.Cancel(t.Context(), "k-cancel", "pi_1")
	_ = client.List(t.Context(), time.Unix(1, 0), time.Now(), func(payments.Intent) bool { return false })
	_, _ = client.Refund(t.Context(), "k-refund", payments.RefundParams{
		IntentID: "pi_1", Amount: 100, Currency: "usd", Reason: "requested_by_customer", Metadata: map[string]string{"refund_id": "r1"},
	})
	_, _ = client.GetRefund(t.Context(), "re_1")
	_ = client.ListRefunds(t.Context(), "pi_1", func(payments.Refund) bool { return false })
	_ = client.ListAllRefunds(t.Context(), time.Unix(1, 0), time.Now(), func(payments.Refund) bool { return false })
	require.Equal(t, []string{
		"POST /v1/payment_intents 200",
		"POST /v1/payment_intents/pi_1/confirm 200",
		"GET /v1/payment_intents/pi_1 200",
		"POST /v1/payment_intents/pi_1/cancel 200",
		"GET /v1/payment_intents 200",
		"POST /v1/refunds 200",
		"GET /v1/refunds/re_1 200",
		"GET /v1/refunds 200",
		"GET /v1/refunds 200",
	}, taken)
}
