//go:build linux

package stripemock_test

import (
	"log/slog"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// stripe-mock keeps no state, so only the status of its responses is checked.
func TestClient_requests(t *testing.T) {
	t.Parallel()
	var accepted []string
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	client := payments.New(payments.Config{
		SecretKey: "sk_test_mock",
		BaseURL:   start(t),
		Timeout:   time.Minute,
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := base.RoundTrip(r)
			if err == nil {
				accepted = append(accepted, r.Method+" "+r.URL.Path+" "+strconv.Itoa(resp.StatusCode))
			}
			return resp, err
		}),
		Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(client.Close)

	// No retries: without state, no response is about the requested object.
	_, _ = client.Create(t.Context(), "k-create", payments.CreateParams{
		Amount: 2500, Currency: "eur", PaymentMethod: "pm_card_visa", Description: "Order 7b0f",
		Metadata: map[string]string{"order_id": "7b0f", "idempotency_key_id": "k1"},
	})
	_, _ = client.Confirm(t.Context(), "k-confirm", "pi_1", true)
	_, _ = client.Get(t.Context(), "pi_1")
	_, _ = client.Cancel(t.Context(), "k-cancel", "pi_1")
	_, _ = client.Search(t.Context(), uuid.New())
	_, _, _ = client.List(t.Context(), time.Unix(1, 0), time.Now(), "")
	_, _ = client.Refund(t.Context(), "k-refund", payments.RefundParams{
		IntentID: "pi_1", Amount: 100, Currency: "usd", Reason: new("requested_by_customer"), Metadata: map[string]string{"refund_id": "r1"},
	})
	_, _ = client.GetRefund(t.Context(), "re_1")
	_, _ = client.ListRefunds(t.Context(), "pi_1")
	_, _, _ = client.ListAllRefunds(t.Context(), time.Unix(1, 0), time.Now(), "")
	require.Equal(t, []string{
		"POST /v1/payment_intents 200",
		"POST /v1/payment_intents/pi_1/confirm 200",
		"GET /v1/payment_intents/pi_1 200",
		"POST /v1/payment_intents/pi_1/cancel 200",
		"GET /v1/payment_intents/search 200",
		"GET /v1/payment_intents 200",
		"POST /v1/refunds 200",
		"GET /v1/refunds/re_1 200",
		"GET /v1/refunds 200",
		"GET /v1/refunds 200",
	}, accepted)
}
