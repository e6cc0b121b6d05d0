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

func page(hasMore bool, ids ...string) response {
	items := make([]string, len(ids))
	for i, id := range ids {
		items[i] = strings.Replace(intent("succeeded"), `"pi_1"`, fmt.Sprintf("%q", id), 1)
	}
	return response{status: 200, body: fmt.Sprintf(`{"object":"list","url":"/v1/payment_intents","has_more":%t,"data":[%s]}`,
		hasMore, strings.Join(items, ","))}
}

func list(t *testing.T, client *payments.Client) ([]string, error) {
	t.Helper()
	var ids []string
	for after := ""; ; {
		intents, next, err := client.List(t.Context(), time.Unix(100, 0), time.Unix(200, 0), after)
		if err != nil {
			return ids, err
		}
		for _, i := range intents {
			ids = append(ids, i.ID)
		}
		if after = next; after == "" {
			return ids, nil
		}
	}
}

func TestList_pages(t *testing.T) {
	t.Parallel()
	provider := startProvider(t, page(true, "pi_4", "pi_3"), page(true, "pi_2"), page(false, "pi_1"))

	ids, err := list(t, newClient(t, provider.url))
	require.NoError(t, err)
	require.Equal(t, []string{"pi_4", "pi_3", "pi_2", "pi_1"}, ids)

	var queries []url.Values
	for _, r := range provider.seen() {
		require.Equal(t, "GET /v1/payment_intents", r.method+" "+r.path)
		queries = append(queries, r.form)
	}
	require.Equal(t, []url.Values{
		{"created[gte]": {"100"}, "created[lte]": {"200"}, "limit": {"100"}},
		{"created[gte]": {"100"}, "created[lte]": {"200"}, "limit": {"100"}, "starting_after": {"pi_3"}},
		{"created[gte]": {"100"}, "created[lte]": {"200"}, "limit": {"100"}, "starting_after": {"pi_2"}},
	}, queries)
}

func TestList_empty(t *testing.T) {
	t.Parallel()
	provider := startProvider(t, page(false))
	intents, next, err := newClient(t, provider.url).List(t.Context(), time.Unix(100, 0), time.Time{}, "")
	require.NoError(t, err)
	require.Empty(t, intents)
	require.Empty(t, next)
	require.Equal(t, url.Values{"created[gte]": {"100"}, "limit": {"100"}}, provider.seen()[0].form)
}

func TestList_retriesPage(t *testing.T) {
	t.Parallel()
	provider := startProvider(t, page(true, "pi_2"), response{status: 500, body: stripeError("api_error", "", "")}, page(false, "pi_1"))
	ids, err := list(t, newClient(t, provider.url))
	require.NoError(t, err)
	require.Equal(t, []string{"pi_2", "pi_1"}, ids)
}

func TestList_incomplete(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		second   response
		attempts int
	}{
		"API key revoked":             {response{status: 401, body: stripeError("invalid_request_error", "", "")}, 2},
		"gateway down":                {response{status: 502, body: "<html>"}, 4},
		"an object without data":      {response{status: 200, body: "{}"}, 4},
		"data that is null":           {response{status: 200, body: `{"data":null,"has_more":false}`}, 4},
		"an intent that is null":      {response{status: 200, body: `{"data":[null],"has_more":false}`}, 4},
		"an intent without an id":     {page(false, ""), 4},
		"an empty page with has_more": {page(true), 4},
		"the same page again":         {page(true, "pi_1"), 4},
		"an error with status 200":    {response{status: 200, body: stripeError("api_error", "", "")}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			provider := startProvider(t, page(true, "pi_2", "pi_1"), test.second)
			ids, err := list(t, newClient(t, provider.url))
			e := failure(t, err)
			require.False(t, e.ReplayedError)
			require.Equal(t, []string{"pi_2", "pi_1"}, ids)
			require.Len(t, provider.seen(), test.attempts)
		})
	}
}
