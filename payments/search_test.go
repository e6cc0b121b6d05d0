package payments_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

func TestSearch(t *testing.T) {
	t.Parallel()
	stripe, client := startStripe(t)
	created := create(t, client)
	found, err := client.Search(t.Context(), "7b0f")
	require.NoError(t, err)
	require.Empty(t, found, "the index lags")

	stripe.Advance(time.Minute)
	found, err = client.Search(t.Context(), "7b0f")
	require.NoError(t, err)
	require.Equal(t, []string{created.ID}, found)
	found, err = client.Search(t.Context(), "another")
	require.NoError(t, err)
	require.Empty(t, found)
}

func TestSearch_request(t *testing.T) {
	t.Parallel()
	provider := startProvider(t, page(false, "pi_2", "pi_1"))
	client := newClient(t, provider.url)
	found, err := client.Search(t.Context(), "7b0f")
	require.NoError(t, err)
	require.Equal(t, []string{"pi_2", "pi_1"}, found)
	sent := provider.seen()[0]
	require.Equal(t, "GET /v1/payment_intents/search", sent.method+" "+sent.path)
	require.Equal(t, url.Values{"query": {"metadata['order_id']:'7b0f'"}, "limit": {"100"}}, sent.form)
	require.Empty(t, sent.header.Get("Idempotency-Key"))

	_, err = client.Search(t.Context(), "7b0f' OR status:'succeeded")
	require.ErrorIs(t, failure(t, err), payments.ErrInvalidCall)
	require.Len(t, provider.seen(), 1)
}

// Stripe does not offer the search to every account. Operators cannot change that, so it
// is no alert, and the same request is not repeated.
func TestSearch_notOffered(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, client *payments.Client) {
		t.Helper()
		found, err := client.Search(t.Context(), "7b0f")
		e := failure(t, err)
		require.Empty(t, found)
		require.True(t, e.NotOffered)
		require.False(t, e.NeedsOperator)
		require.Equal(t, payments.NotExecuted, e.Outcome)
	}
	for _, response := range []response{
		{status: 400, body: stripeError("invalid_request_error", "", "")},
		{status: 403, body: stripeError("invalid_request_error", "", "")},
		{status: 404, body: stripeError("invalid_request_error", "resource_missing", `,"param":"intent"`)},
		{status: 404, body: "<html>not found"},
	} {
		t.Run(fmt.Sprint(response), func(t *testing.T) {
			t.Parallel()
			provider := startProvider(t, response)
			check(t, newClient(t, provider.url))
			require.Len(t, provider.seen(), 1)
		})
	}
	t.Run("fake", func(t *testing.T) {
		t.Parallel()
		stripe, client := startStripe(t)
		stripe.Inject(stripetest.Rule{Fault: stripetest.NoSearch})
		check(t, client)
	})
}

func TestSearch_noResult(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		response response
		attempts int
	}{
		"API key revoked":         {response{status: 401, body: stripeError("invalid_request_error", "", "")}, 1},
		"rate limit":              {response{status: 429, body: stripeError("invalid_request_error", "rate_limit", "")}, 3},
		"gateway down":            {response{status: 502, body: "<html>"}, 3},
		"a second page":           {page(true, "pi_2", "pi_1"), 3},
		"an object without data":  {response{status: 200, body: "{}"}, 3},
		"an intent that is null":  {response{status: 200, body: `{"data":[null]}`}, 3},
		"an intent without an id": {page(false, ""), 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			provider := startProvider(t, test.response)
			_, err := newClient(t, provider.url).Search(t.Context(), "7b0f")
			e := failure(t, err)
			require.False(t, e.NotOffered)
			require.Equal(t, test.response.status == http.StatusUnauthorized, e.NeedsOperator)
			require.Len(t, provider.seen(), test.attempts)
		})
	}
}
