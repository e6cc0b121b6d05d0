package payments_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
)

func TestPing(t *testing.T) {
	t.Parallel()
	provider := startProvider(t, response{status: 503}, page(true, "pi_1"))
	require.NoError(t, newClient(t, provider.url).Ping(t.Context()))
	require.Equal(t, "2024-06-20", payments.APIVersion)

	require.Len(t, provider.seen(), 2, "a second attempt, and one page only")
	second := provider.seen()[1]
	require.Equal(t, "GET /v1/payment_intents", second.method+" "+second.path)
	require.Equal(t, url.Values{"limit": {"1"}}, second.form)
}

func TestPing_unreadableResponse(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"<html>" + canary, `{"object":"` + canary + `"}`} {
		err := newClient(t, startProvider(t, response{status: 200, body: body}).url).Ping(t.Context())
		require.ErrorIs(t, failure(t, err), payments.ErrUnreadable)
	}
}
