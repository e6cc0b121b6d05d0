package payments_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
)

func TestCalls_requests(t *testing.T) {
	t.Parallel()
	for call, test := range map[string]struct {
		want string
		key  string
		form url.Values
	}{
		"create": {"POST /v1/payment_intents", createKey, url.Values{
			"amount":                             {"2500"},
			"currency":                           {"eur"},
			"payment_method":                     {"pm_card_visa"},
			"description":                        {"Order 7b0f"},
			"metadata[order_id]":                 {"7b0f"},
			"metadata[idempotency_key_id]":       {"k1"},
			"automatic_payment_methods[enabled]": {"true"},
			"automatic_payment_methods[allow_redirects]": {"never"},
		}},
		"confirm":            {"POST /v1/payment_intents/pi_1/confirm", confirmKey, url.Values{"off_session": {"true"}}},
		"confirm_on_session": {"POST /v1/payment_intents/pi_1/confirm", confirmKey, url.Values{"use_stripe_sdk": {"true"}}},
		"cancel":             {"POST /v1/payment_intents/pi_1/cancel", "k-cancel", url.Values{}},
		"get":                {"GET /v1/payment_intents/pi_1", "", url.Values{}},
		"search":             {"GET /v1/payment_intents/search", "", url.Values{"query": {"metadata['order_id']:'1'"}, "limit": {"100"}}},
		"refund": {"POST /v1/refunds", refundKey, url.Values{
			"payment_intent": {"pi_1"}, "amount": {"700"}, "reason": {"duplicate"}, "metadata[refund_id]": {"r1"},
		}},
		"list_disputes": {"GET /v1/disputes", "", url.Values{"payment_intent": {"pi_1"}, "limit": {"100"}}},
	} {
		provider := respond(response{status: 401, body: stripeError(invalid, "", "")})
		require.Error(t, calls()[call](t.Context(), newClient(t, provider)))
		require.Len(t, provider.seen(), 1)
		r := provider.seen()[0]
		require.Equal(t, test.want, r.call)
		require.Equal(t, test.form, r.form)
		require.Equal(t, test.key, r.header.Get("Idempotency-Key"))
		require.Equal(t, "Bearer "+secretKey, r.header.Get("Authorization"))
		require.Equal(t, "2024-06-20", r.header.Get("Stripe-Version"))
	}
}

func TestGet_intent(t *testing.T) {
	t.Parallel()
	provider := respond(response{status: 200, body: `{"id":"pi_1","object":"payment_intent","status":"requires_payment_method",
		"amount":2500,"amount_received":0,"currency":"eur","created":1760000000,"latest_charge":{"id":"ch_1","object":"charge"},
		"metadata":{"order_id":"7b0f"},"last_payment_error":{"type":"card_error","code":"card_declined",
		"decline_code":"lost_card","message":"Your card was declined."}}`})

	got, err := newClient(t, provider).Get(t.Context(), "pi_1")
	require.NoError(t, err)
	require.Equal(t, payments.Intent{
		ID:        "pi_1",
		Status:    payments.StatusRequiresPaymentMethod,
		Amount:    2500,
		Currency:  "eur",
		Metadata:  map[string]string{"order_id": "7b0f"},
		Created:   time.Date(2025, time.October, 9, 8, 53, 20, 0, time.UTC),
		LastError: &payments.Decline{Code: "card_declined", DeclineCode: "lost_card", Message: "Your card was declined."},
	}, got)
}

func TestCreate_mismatch(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ old, new string }{
		"another amount":       {"2500", "2501"},
		"another currency":     {`"eur"`, `"usd"`},
		"another order":        {`"order_id":"7b0f"`, `"order_id":"7b10"`},
		"metadata missing":     {`"order_id":"7b0f",`, ``},
		"metadata of a second": {`"order_id":"7b0f",`, `"order_id":"7b0f","more":"x",`},
	} {
		provider := respond(response{status: 200, body: strings.Replace(intent("requires_confirmation"), test.old, test.new, 1)})
		_, err := newClient(t, provider).Create(t.Context(), createKey, createParams)
		e := failure(t, err)
		require.Equal(t, payments.Unknown, e.Outcome, name)
		require.True(t, e.NeedsOperator, name)
		require.ErrorIs(t, e, payments.ErrMismatch, name)
		require.Len(t, provider.seen(), 1)
	}
}

const refundKey = "orders-api-7b0f-refund"

var refundParams = payments.RefundParams{
	IntentID: "pi_1",
	Amount:   700,
	Currency: "eur",
	Reason:   new("duplicate"),
	Metadata: map[string]string{"refund_id": "r1"},
}

func refund(status string) string {
	return fmt.Sprintf(`{"id":"re_1","object":"refund","amount":700,"charge":"ch_1","created":1760000000,"currency":"eur",`+
		`"metadata":{"refund_id":"r1"},"payment_intent":"pi_1","reason":"duplicate","status":%q}`, status)
}

func TestRefund_response(t *testing.T) {
	t.Parallel()
	provider := respond(response{status: 200, body: refund("pending")})
	got, err := newClient(t, provider).Refund(t.Context(), refundKey, refundParams)
	require.NoError(t, err)
	require.Equal(t, payments.Refund{
		ID: "re_1", Status: payments.RefundPending, Amount: 700, Currency: "eur", Reason: "duplicate", IntentID: "pi_1",
		Metadata: map[string]string{"refund_id": "r1"}, Created: time.Unix(1760000000, 0).UTC(),
	}, got)
}

func TestRefund_mismatch(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ old, new string }{
		"another amount":   {"700", "701"},
		"another currency": {`"eur"`, `"usd"`},
		"another intent":   {`"pi_1"`, `"pi_2"`},
		"no intent":        {`"pi_1"`, `null`},
		"other metadata":   {`"r1"`, `"r2"`},
		"no status":        {`"succeeded"`, `""`},
		"no id":            {`"re_1"`, `""`},
	} {
		provider := respond(response{status: 200, body: strings.Replace(refund("succeeded"), test.old, test.new, 1)})
		_, err := newClient(t, provider).Refund(t.Context(), refundKey, refundParams)
		require.Equal(t, payments.Unknown, failure(t, err).Outcome, name) // it may have been made
	}
}
