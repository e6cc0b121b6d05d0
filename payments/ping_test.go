package payments_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
)

func TestPing_versionAndTime(t *testing.T) {
	t.Parallel()
	one := page(true, "pi_1")
	one.header = http.Header{"Stripe-Version": {"2020-08-27"}, "Date": {"Wed, 04 Mar 2026 17:06:07 GMT"}}
	provider := startProvider(t, response{status: 503}, one)

	info, err := newClient(t, provider.url).Ping(t.Context())
	require.NoError(t, err)
	require.Equal(t, payments.ServerInfo{APIVersion: "2020-08-27", Date: time.Date(2026, time.March, 4, 17, 6, 7, 0, time.UTC)}, info)
	require.Equal(t, "2024-06-20", payments.APIVersion)

	require.Len(t, provider.seen(), 2, "a second attempt, and one page only")
	second := provider.seen()[1]
	require.Equal(t, "GET /v1/payment_intents", second.method+" "+second.path)
	require.Equal(t, url.Values{"limit": {"1"}}, second.form)
}

func TestPing_unreadableResponse(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"<html>" + canary, `{"object":"` + canary + `"}`} {
		_, err := newClient(t, startProvider(t, response{status: 200, body: body}).url).Ping(t.Context())
		require.ErrorIs(t, failure(t, err), payments.ErrUnreadable)
	}
}
