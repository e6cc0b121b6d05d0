package client_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
)

func TestCreateRefund(t *testing.T) {
	t.Parallel()
	f := newFixture(t, closeConnection,
		respond(201, jsonType, `{"id":"r1","order_id":"o1","amount":500,"currency":"usd","status":"succeeded","provider_refund_id":"re_1"}`))
	refund, err := f.CreateRefund(t.Context(), key, "o1", client.RefundParams{Amount: 500, Reason: "requested_by_customer"})
	require.NoError(t, err)
	require.Equal(t, client.Refund{ID: "r1", OrderID: "o1", Amount: 500, Currency: "usd", Status: "succeeded", ProviderRefundID: "re_1"}, refund)
	for _, r := range f.received() {
		require.Equal(t, "POST /v1/orders/o1/refunds", r.method+" "+r.uri)
		require.Equal(t, string(key), r.header.Get("Idempotency-Key"))
		require.JSONEq(t, `{"amount":500,"reason":"requested_by_customer"}`, r.body)
	}
}

// A forgotten amount is sent, because the API rejects 0. Only a call of its own refunds all that remains.
func TestCreateRefund_noAmount(t *testing.T) {
	t.Parallel()
	f := newFixture(t, respondProblem(422, "validation-failed", "corrected"), respondCreated(), respondCreated())
	_, err := f.CreateRefund(t.Context(), key, "o1", client.RefundParams{Reason: "duplicate"})
	require.Error(t, err)
	_, err = f.RefundRemaining(t.Context(), key, "o1", "duplicate")
	require.NoError(t, err)
	_, err = f.RefundRemaining(t.Context(), key, "o1", "")
	require.NoError(t, err)
	for i, body := range []string{`{"amount":0,"reason":"duplicate"}`, `{"reason":"duplicate"}`, `{}`} {
		require.Equal(t, "/v1/orders/o1/refunds", f.received()[i].uri)
		require.JSONEq(t, body, f.received()[i].body)
	}
}

func TestGetRefund(t *testing.T) {
	t.Parallel()
	f := newFixture(t, respond(200, jsonType, `{"id":"r1","order_id":"o1","reason":null,"status":"failed","source":"provider","failure_reason":"expired_or_canceled_card"}`))
	refund, err := f.GetRefund(t.Context(), "o1", "r1")
	require.NoError(t, err)
	require.Equal(t, client.Refund{ID: "r1", OrderID: "o1", Status: "failed", Source: "provider", FailureReason: "expired_or_canceled_card"}, refund)
	require.Equal(t, "GET /v1/orders/o1/refunds/r1", f.received()[0].method+" "+f.received()[0].uri)
}

func TestListRefunds(t *testing.T) {
	t.Parallel()
	f := newFixture(t, respond(200, jsonType, `{"data":[{"id":"r1","order_id":"o1"}],"has_more":true}`))
	page, err := f.ListRefunds(t.Context(), "o1", client.RefundFilter{Limit: 1, After: "r2"})
	require.NoError(t, err)
	require.Equal(t, client.RefundPage{Data: []client.Refund{{ID: "r1", OrderID: "o1"}}, HasMore: true}, page)
	require.Equal(t, "GET /v1/orders/o1/refunds?after=r2&limit=1", f.received()[0].method+" "+f.received()[0].uri)
}
