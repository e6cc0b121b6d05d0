package payments_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

const (
	refundKey      = "orders-api-7b0f-refund"
	refundEndpoint = "POST /v1/refunds"
)

var refundParams = payments.RefundParams{
	IntentID: "pi_1",
	Amount:   700,
	Currency: "eur",
	Reason:   "duplicate",
	Metadata: map[string]string{"refund_id": "r1"},
}

// refund is Stripe's JSON of the refund of refundParams.
func refund(status string) string {
	return fmt.Sprintf(`{"id":"re_1","object":"refund","amount":700,"charge":"ch_1","created":1760000000,"currency":"eur",`+
		`"metadata":{"refund_id":"r1"},"payment_intent":"pi_1","reason":"duplicate","status":%q}`, status)
}

func TestRefund_requestAndResponse(t *testing.T) {
	t.Parallel()
	provider := startProvider(t, response{status: 200, body: refund("pending")})
	got, err := newClient(t, provider.url).Refund(t.Context(), refundKey, refundParams)
	require.NoError(t, err)
	require.Equal(t, payments.Refund{
		ID: "re_1", Status: payments.RefundPending, Amount: 700, Currency: "eur", IntentID: "pi_1",
		Metadata: map[string]string{"refund_id": "r1"}, Created: time.Unix(1760000000, 0).UTC(),
	}, got)
	require.True(t, got.Matches("pi_1", 700, "eur", "r1"))
	require.False(t, got.Matches("pi_2", 700, "eur", "r1"))
	require.False(t, got.Matches("pi_1", 701, "eur", "r1"))
	require.False(t, got.Matches("pi_1", 700, "usd", "r1"))
	require.False(t, got.Matches("pi_1", 700, "eur", "r2"))

	sent := provider.seen()[0]
	require.Equal(t, "POST /v1/refunds", sent.method+" "+sent.path)
	require.Equal(t, refundKey, sent.header.Get("Idempotency-Key"))
	require.Equal(t, url.Values{
		"payment_intent": {"pi_1"}, "amount": {"700"}, "reason": {"duplicate"}, "metadata[refund_id]": {"r1"},
	}, sent.form)
}

func TestRefund_mismatch(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"another amount":   strings.Replace(refund("succeeded"), "700", "701", 1),
		"another currency": strings.Replace(refund("succeeded"), `"eur"`, `"usd"`, 1),
		"another intent":   strings.Replace(refund("succeeded"), `"pi_1"`, `"pi_2"`, 1),
		"no intent":        strings.Replace(refund("succeeded"), `"pi_1"`, `null`, 1),
		"other metadata":   strings.Replace(refund("succeeded"), `"r1"`, `"r2"`, 1),
		"no status":        refund(""),
		"no id":            strings.Replace(refund("succeeded"), `"re_1"`, `""`, 1),
		"an empty object":  "{}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			provider := startProvider(t, response{status: 200, body: body})
			_, err := newClient(t, provider.url).Refund(t.Context(), refundKey, refundParams)
			require.Equal(t, payments.Unknown, failure(t, err).Outcome, "it may have been made")
		})
	}
}

func TestListRefunds_mismatch(t *testing.T) {
	t.Parallel()
	list := `{"object":"list","url":"/v1/refunds","has_more":false,"data":[` + refund("succeeded") + `]}`
	provider := startProvider(t, response{status: 200, body: list})
	client := newClient(t, provider.url)
	ofIntent, err := client.ListRefunds(t.Context(), "pi_1")
	require.NoError(t, err)
	require.Equal(t, "re_1", ofIntent[0].ID)
	all, next, err := client.ListAllRefunds(t.Context(), time.Unix(100, 0), time.Unix(200, 0), "")
	require.NoError(t, err)
	require.Empty(t, next)
	require.Equal(t, ofIntent, all)
	_, err = client.ListRefunds(t.Context(), "pi_2")
	require.ErrorIs(t, err, payments.ErrMismatch)
	require.Equal(t, url.Values{"payment_intent": {"pi_1"}, "limit": {"100"}}, provider.seen()[0].form)
	require.Equal(t, url.Values{"created[gte]": {"100"}, "created[lte]": {"200"}, "limit": {"100"}}, provider.seen()[1].form)
}

func TestListRefunds_pages(t *testing.T) {
	t.Parallel()
	page := func(hasMore bool, id string) response {
		return response{status: 200, body: fmt.Sprintf(`{"object":"list","url":"/v1/refunds","has_more":%t,"data":[%s]}`,
			hasMore, strings.Replace(refund("succeeded"), `"re_1"`, fmt.Sprintf("%q", id), 1))}
	}
	provider := startProvider(t, page(true, "re_2"), page(false, "re_1"))
	refunds, err := newClient(t, provider.url).ListRefunds(t.Context(), "pi_1")
	require.NoError(t, err)
	require.Len(t, refunds, 2)
	require.Equal(t, "re_1", refunds[1].ID)
	require.Equal(t, url.Values{"payment_intent": {"pi_1"}, "limit": {"100"}, "starting_after": {"re_2"}}, provider.seen()[1].form)
}

// A refund with a lost response is found by its key, in the list and by its id.
func TestRefund_responseLost(t *testing.T) {
	t.Parallel()
	stripe, client := startStripe(t)
	intent := create(t, client)
	_, err := client.Confirm(t.Context(), confirmKey, intent.ID, true)
	require.NoError(t, err)
	params := refundParams
	params.IntentID = intent.ID

	stripe.Inject(stripetest.Rule{Fault: stripetest.CloseAfter, Endpoint: refundEndpoint})
	refund, err := client.Refund(t.Context(), refundKey, params)
	require.NoError(t, err)
	require.Equal(t, payments.RefundSucceeded, refund.Status)
	require.True(t, refund.Matches(intent.ID, 700, "eur", "r1"))
	require.Equal(t, map[string]int64{"eur": 1800}, stripe.MoneyMoved())

	read, err := client.GetRefund(t.Context(), refund.ID)
	require.NoError(t, err)
	require.Equal(t, refund, read)
	listed, err := client.ListRefunds(t.Context(), intent.ID)
	require.NoError(t, err)
	require.Equal(t, []payments.Refund{refund}, listed)
}
