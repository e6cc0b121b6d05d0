package client_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
)

// A forgotten amount is sent, because the API rejects 0. Only a call of its own refunds all that remains.
func TestCreateRefund_noAmount(t *testing.T) {
	t.Parallel()
	f := newFixture(t, respondProblem(422, "validation-failed", "corrected"), respondCreated(), respondCreated(), closeConnection,
		respond(201, jsonType, `{"id":"r1","order_id":"o1","amount":500,"currency":"usd","status":"succeeded","provider_refund_id":"re_1"}`))
	_, err := f.CreateRefund(t.Context(), key, "o1", client.RefundParams{Reason: "duplicate"})
	require.Error(t, err)
	_, err = f.RefundRemaining(t.Context(), key, "o1", "duplicate")
	require.NoError(t, err)
	_, err = f.RefundRemaining(t.Context(), key, "o1", "")
	require.NoError(t, err)
	refund, err := f.CreateRefund(t.Context(), key, "o1", client.RefundParams{Amount: 500, Reason: "requested_by_customer"})
	require.NoError(t, err)
	require.Equal(t, client.Refund{ID: "r1", OrderID: "o1", Amount: 500, Currency: "usd", Status: "succeeded", ProviderRefundID: "re_1"}, refund)
	const part = `{"amount":500,"reason":"requested_by_customer"}`
	for i, body := range []string{`{"amount":0,"reason":"duplicate"}`, `{"reason":"duplicate"}`, `{}`, part, part} {
		sent := f.received()[i]
		require.Equal(t, "POST /v1/orders/o1/refunds", sent.method+" "+sent.uri)
		require.Equal(t, string(key), sent.header.Get("Idempotency-Key"))
		require.JSONEq(t, body, sent.body)
	}
}

func TestRefunds_reads(t *testing.T) {
	t.Parallel()
	f := newFixture(t, respond(200, jsonType, `{"id":"r1"}`), respond(200, jsonType, `{"data":[{"id":"r1"}],"has_more":true}`))
	refund, err := f.GetRefund(t.Context(), "o1", "r1")
	require.NoError(t, err)
	page, err := f.ListRefunds(t.Context(), "o1", client.RefundFilter{Limit: 1, After: "r2"})
	require.NoError(t, err)
	require.Equal(t, client.RefundPage{Data: []client.Refund{refund}, HasMore: true}, page)
	for i, uri := range []string{"/v1/orders/o1/refunds/r1", "/v1/orders/o1/refunds?after=r2&limit=1"} {
		require.Equal(t, "GET "+uri, f.received()[i].method+" "+f.received()[i].uri)
	}
}
