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

func TestGetOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t, closeConnection, respond(200, jsonType, `{"id":"o1","status":"paid","paid_at":"2026-11-20T09:30:13Z","email":null,
		"disputes":[{"id":"dp_1","status":"lost","amount":500,"currency":"usd","reason":"fraudulent"}]}`),
		respond(200, jsonType, `{"id":1}`), respondProblem(404, "not-found", "never"))
	order, err := f.GetOrder(t.Context(), "o1")
	require.NoError(t, err)
	require.Equal(t, "2026-11-20T09:30:13Z", order.PaidAt.Format(time.RFC3339))
	require.Empty(t, order.Email)
	require.Equal(t, []client.Dispute{{ID: "dp_1", Status: "lost", Amount: 500, Currency: "usd", Reason: "fraudulent"}}, order.Disputes)
	require.Len(t, f.received(), 2)
	sent := f.received()[1]
	require.Equal(t, "GET /v1/orders/o1", sent.method+" "+sent.uri)
	require.Empty(t, sent.header["Idempotency-Key"])
	require.Empty(t, sent.body)

	_, err = f.GetOrder(t.Context(), "o1")
	var mismatch *json.UnmarshalTypeError
	require.ErrorAs(t, err, &mismatch)

	_, err = f.GetOrder(t.Context(), "a/../b")
	var problem *client.Problem
	require.ErrorAs(t, err, &problem)
	require.Equal(t, "/v1/orders/a%2F..%2Fb", f.received()[3].uri)
}

func TestCancelOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t, closeConnection, respondCreated(), respondProblem(503, "payment-outcome-unknown", "same-key"),
		respond(200, jsonType, `{"id":"o1","status":"payment_failed","failure":{"code":"canceled"}}`),
		respondProblem(422, "order-not-cancelable", "never"))
	order, err := f.CancelOrder(t.Context(), key, "o1")
	require.NoError(t, err)
	require.Equal(t, "canceled", order.Failure.Code)
	require.Len(t, f.received(), 4, "a 201 is no response to a cancel")
	for _, r := range f.received() {
		require.Equal(t, "POST /v1/orders/o1/cancel", r.method+" "+r.uri)
		require.Equal(t, string(key), r.header.Get("Idempotency-Key"))
		require.Equal(t, "{}", r.body)
	}

	_, err = f.CancelOrder(t.Context(), client.NewKey(), "o1")
	var problem *client.Problem
	require.ErrorAs(t, err, &problem)
	require.Equal(t, "/problems/order-not-cancelable", problem.Type)
}

func TestListOrders(t *testing.T) {
	t.Parallel()
	f := newFixture(t, respond(200, jsonType, `{"data":[{"id":"o2"},{"id":"o1"}],"has_more":true}`))
	for want, filter := range map[string]client.OrderFilter{
		"/v1/orders?":                       {},
		"/v1/orders?after=o1&limit=2":       {Limit: 2, After: "o1"},
		"/v1/orders?reference=basket+%2317": {Reference: "basket #17"},
	} {
		page, err := f.ListOrders(t.Context(), filter)
		require.NoError(t, err)
		require.True(t, page.HasMore)
		require.Equal(t, "o1", page.Data[1].ID)
		require.Equal(t, want, f.received()[len(f.received())-1].uri)
	}
}

func TestGetKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t, respond(200, jsonType, `{
		"key":"a/key with#20%-0123","state":"finished","operation":"create_order","recovery_point":"finished","runs":1,
		"created_at":"2026-11-20T09:30:12Z","updated_at":"2026-11-20T09:30:12Z","expires_at":"2026-11-23T09:30:13Z",
		"response":{"status":201,"type":null,"location":"/v1/orders/o1"},"order":{"id":"o1","href":"/v1/orders/o1"},"refund":null}`),
		respond(200, jsonType, `{"key":"a/key#20%-0123456","state":"expired","operation":"create_refund","recovery_point":null,"runs":null,
		"created_at":"2026-11-20T09:30:12Z","updated_at":null,"expires_at":null,"response":null,
		"order":{"id":"o1","href":"/v1/orders/o1"},"refund":{"id":"r1","href":"/v1/orders/o1/refunds/r1"}}`))
	status, err := f.GetKey(t.Context(), "a/key#20%-0123456", client.Wait(20*time.Second))
	require.NoError(t, err)
	require.Equal(t, []string{"wait=20"}, f.received()[0].header["Prefer"])
	require.Equal(t, "finished", status.State)
	require.Equal(t, &client.KeyResponse{Status: 201, Location: "/v1/orders/o1"}, status.Response)
	require.Nil(t, status.Refund)
	require.Equal(t, "/v1/orders/o1", status.Order.Href)
	require.Equal(t, "/v1/idempotency-keys/~YS9rZXkjMjAlLTAxMjM0NTY", f.received()[0].uri, "nothing that a proxy could decode")

	status, err = f.GetKey(t.Context(), "~a-key-with-a-tilde")
	require.NoError(t, err)
	require.Equal(t, "expired", status.State)
	require.Nil(t, status.ExpiresAt)
	require.Equal(t, &client.Resource{ID: "r1", Href: "/v1/orders/o1/refunds/r1"}, status.Refund)
	require.Equal(t, "/v1/idempotency-keys/~fmEta2V5LXdpdGgtYS10aWxkZQ", f.received()[1].uri, "not the key that the rest may encode")
}
