package payments_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
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
		"list":               {"GET /v1/payment_intents", "", url.Values{"created[gte]": {"1"}, "limit": {"100"}}},
		"list_all_refunds":   {"GET /v1/refunds", "", url.Values{"created[gte]": {"1"}, "limit": {"100"}}},
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

// What has another subject than the request is not its response. It may have had an effect.
func TestCalls_mismatch(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ call, old, new string }{
		"intent with another amount":   {"create", "2500", "2501"},
		"intent with another currency": {"create", `"eur"`, `"usd"`},
		"intent of another order":      {"create", `"order_id":"7b0f"`, `"order_id":"7b10"`},
		"intent without some metadata": {"create", `"order_id":"7b0f",`, ``},
		"intent with more metadata":    {"create", `"order_id":"7b0f",`, `"order_id":"7b0f","more":"x",`},
		"refund with another amount":   {"refund", "700", "701"},
		"refund with another currency": {"refund", `"eur"`, `"usd"`},
		"refund of another intent":     {"refund", `"pi_1"`, `"pi_2"`},
		"refund of no intent":          {"refund", `"pi_1"`, `null`},
		"refund with other metadata":   {"refund", `"r1"`, `"r2"`},
		"refund without a status":      {"refund", `"succeeded"`, `""`},
		"refund without an id":         {"refund", `"re_1"`, `""`},
	} {
		body := map[string]string{"create": intent("requires_confirmation"), "refund": refund("succeeded")}[test.call]
		provider := respond(response{status: 200, body: strings.Replace(body, test.old, test.new, 1)})
		e := failure(t, calls()[test.call](t.Context(), newClient(t, provider)))
		require.Equal(t, payments.Unknown, e.Outcome, name)
		if test.call == "create" {
			require.True(t, e.NeedsOperator, name)
			require.ErrorIs(t, e, payments.ErrMismatch, name)
			require.Len(t, provider.seen(), 1)
		}
	}
}

func listOf(object string, hasMore bool, ids ...string) response {
	items := make([]string, len(ids))
	for i, id := range ids {
		items[i] = strings.Replace(object, `"pi_1"`, fmt.Sprintf("%q", id), 1)
	}
	return response{status: 200, body: fmt.Sprintf(`{"object":"list","has_more":%t,"data":[%s]}`, hasMore, strings.Join(items, ","))}
}

func page(hasMore bool, ids ...string) response { return listOf(intent("succeeded"), hasMore, ids...) }

func list(t *testing.T, client *payments.Client) ([]string, error) {
	t.Helper()
	var ids []string
	for after := ""; ; {
		intents, next, err := client.List(t.Context(), time.Unix(100, 0), after)
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

// A hundred recorded 3-D Secure intents with full metadata had 1.5 MB.
func TestList_largePage(t *testing.T) {
	t.Parallel()
	metadata := make(map[string]string)
	for i := range 50 {
		metadata[fmt.Sprintf("key_%036d", i)] = strings.Repeat("x", 500)
	}
	full, err := json.Marshal(metadata)
	require.NoError(t, err)
	object := strings.Replace(intent("requires_action"), `"amount_received":0`,
		`"next_action":{"type":"use_stripe_sdk","use_stripe_sdk":{"certificates":"`+strings.Repeat("y", 8<<10)+`"}},"x":`+string(full), 1)
	large := listOf(object, false, slices.Repeat([]string{"pi_2"}, 100)...)
	require.Greater(t, len(large.body), 3<<20)
	ids, err := list(t, newClient(t, respond(large)))
	require.NoError(t, err)
	require.Len(t, ids, 100)
}

// A list that is not complete is an error, because it would prove an absence.
func TestList_incomplete(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		second   response
		attempts int
	}{
		"API key revoked":             {response{status: 401, body: stripeError(invalid, "", "")}, 2},
		"gateway down":                {response{status: 502, body: "<html>"}, 4},
		"an object without data":      {response{status: 200, body: "{}"}, 4},
		"an intent that is null":      {response{status: 200, body: `{"data":[null],"has_more":false}`}, 4},
		"an intent without an id":     {page(false, ""), 4},
		"an empty page with has_more": {page(true), 4},
		"the same page again":         {page(true, "pi_1"), 4},
		"an error with status 200":    {response{status: 200, body: stripeError("api_error", "", "")}, 4},
	} {
		provider := respond(page(true, "pi_2", "pi_1"), test.second)
		ids, err := list(t, newClient(t, provider))
		require.False(t, failure(t, err).SavedUnderKey)
		require.Equal(t, []string{"pi_2", "pi_1"}, ids, name)
		require.Len(t, provider.seen(), test.attempts, name)
	}
}

const searched = "7b0f7b0f-0000-8000-8000-000000000000"

func TestSearch_fails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		response   response
		notOffered bool // no alert, because operators cannot change it
		attempts   int
	}{
		"not offered":             {response{status: 400, body: stripeError(invalid, "", "")}, true, 1},
		"not permitted":           {response{status: 403, body: stripeError(invalid, "", "")}, true, 1},
		"an intent named search":  {response{status: 404, body: stripeError(invalid, "resource_missing", param("intent"))}, true, 1},
		"another server":          {response{status: 404, body: "<html>not found"}, true, 1},
		"API key revoked":         {response{status: 401, body: stripeError(invalid, "", "")}, false, 1},
		"a second page":           {page(true, "pi_2", "pi_1"), false, 1},
		"an intent without an id": {page(false, "pi_2", ""), false, 3},
	} {
		provider := respond(test.response)
		found, err := newClient(t, provider).Search(t.Context(), "order_id", searched)
		e := failure(t, err)
		require.Empty(t, found, name)
		require.Equal(t, test.notOffered, e.Outcome == payments.NotOffered, name)
		require.Equal(t, test.response.status == 401, e.NeedsOperator, name)
		require.Len(t, provider.seen(), test.attempts, name)
	}
}
