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

func TestRefund_requestAndResponse(t *testing.T) {
	t.Parallel()
	provider := respond(response{status: 200, body: refund("pending")})
	got, err := newClient(t, provider).Refund(t.Context(), refundKey, refundParams)
	require.NoError(t, err)
	require.Equal(t, payments.Refund{
		ID: "re_1", Status: payments.RefundPending, Amount: 700, Currency: "eur", Reason: "duplicate", IntentID: "pi_1",
		Metadata: map[string]string{"refund_id": "r1"}, Created: time.Unix(1760000000, 0).UTC(),
	}, got)

	sent := provider.seen()[0]
	require.Equal(t, "POST /v1/refunds", sent.call)
	require.Equal(t, refundKey, sent.header.Get("Idempotency-Key"))
	require.Equal(t, url.Values{
		"payment_intent": {"pi_1"}, "amount": {"700"}, "reason": {"duplicate"}, "metadata[refund_id]": {"r1"},
	}, sent.form)
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
