package client_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
)

func TestNew_invalidConfig(t *testing.T) {
	t.Parallel()
	_, err := client.New(client.Config{BaseURL: "orders.example.com"})
	require.EqualError(t, err, "client: BaseURL must be an http or https URL\nclient: APIKey is missing")
	_, err = client.New(client.Config{BaseURL: "https://orders.example.com?x=1", APIKey: "sk_1\n"})
	require.EqualError(t, err, "client: BaseURL must be an http or https URL\nclient: APIKey must have only visible ASCII characters")
}

func TestFormat_noSecret(t *testing.T) {
	t.Parallel()
	config := client.Config{BaseURL: "https://orders.example.com", APIKey: "CANARY"}
	c, err := client.New(config)
	require.NoError(t, err)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		require.NotContains(t, fmt.Sprintf(verb+verb+verb, config, c, &config), "CANARY")
	}
}

// A read repeats without a key. The tests of package api decode the responses.
func TestReads_requests(t *testing.T) {
	t.Parallel()
	f := newFixture(t, closeConnection, respond(200, jsonType, `{"has_more":true}`))
	ctx := t.Context()
	for want, read := range map[string]func() (any, error){
		"/v1/orders/o1":                     func() (any, error) { return f.GetOrder(ctx, "o1") },
		"/v1/orders/a%2F..%2Fb":             func() (any, error) { return f.GetOrder(ctx, "a/../b") },
		"/v1/orders?":                       func() (any, error) { return f.ListOrders(ctx, client.OrderFilter{}) },
		"/v1/orders?after=o1&limit=2":       func() (any, error) { return f.ListOrders(ctx, client.OrderFilter{Limit: 2, After: "o1"}) },
		"/v1/orders?reference=basket+%2317": func() (any, error) { return f.ListOrders(ctx, client.OrderFilter{Reference: "basket #17"}) },
		// Nothing that a proxy could decode, and not the key that the rest of a tilde's key may encode.
		"/v1/idempotency-keys/~YS9rZXkjMjAlLTAxMjM0NTY":    func() (any, error) { return f.GetKey(ctx, "a/key#20%-0123456") },
		"/v1/idempotency-keys/~fmEta2V5LXdpdGgtYS10aWxkZQ": func() (any, error) { return f.GetKey(ctx, "~a-key-with-a-tilde") },
	} {
		_, err := read()
		require.NoError(t, err)
		sent := f.received()[len(f.received())-1]
		require.Equal(t, "GET "+want, sent.method+" "+sent.uri)
		require.Empty(t, sent.header["Idempotency-Key"])
		require.Empty(t, sent.body)
	}
	require.Len(t, f.received(), 8, "one is repeated")

	f = newFixture(t, respond(200, jsonType, `{"id":1}`))
	_, err := f.GetOrder(ctx, "o1")
	var mismatch *json.UnmarshalTypeError
	require.ErrorAs(t, err, &mismatch)
	_, err = f.GetKey(ctx, "a-key-of-this-test", client.Wait(20*time.Second))
	require.NoError(t, err)
	require.Equal(t, []string{"wait=20"}, f.received()[1].header["Prefer"])
}

func TestCancelOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t, closeConnection, respondCreated(), respondProblem(503, "payment-outcome-unknown", "same-key"),
		respond(200, jsonType, `{"id":"o1","status":"payment_failed","failure":{"code":"canceled"}}`))
	order, err := f.CancelOrder(t.Context(), key, "o1")
	require.NoError(t, err)
	require.Equal(t, "canceled", order.Failure.Code)
	require.Len(t, f.received(), 4, "a 201 is no response to a cancel")
	for _, r := range f.received() {
		require.Equal(t, "POST /v1/orders/o1/cancel", r.method+" "+r.uri)
		require.Equal(t, string(key), r.header.Get("Idempotency-Key"))
		require.Equal(t, "{}", r.body)
	}
}
