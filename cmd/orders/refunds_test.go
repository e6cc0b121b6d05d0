package main_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/programtest"
)

// The history of an order has its refunds, and a refund is found by its names.
func TestKeysShow_refund(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const key = "a-refund-of-an-order-1"
	a := f.serve(f.environ, "--shutdown-delay", "0")
	id := programtest.RequirePaid(t, a.MustOrder("an-order-to-refund-1", programtest.Tea))
	refunded := a.MustDo(http.MethodPost, "/v1/orders/"+id+"/refunds", `{"amount":100}`, http.Header{"Idempotency-Key": {key}})
	require.Equal(t, http.StatusCreated, refunded.Status)
	a.Stop()
	var providerRefund string
	require.NoError(t, f.pool.QueryRow(t.Context(), "SELECT provider_refund_id FROM refunds").Scan(&providerRefund))
	refund := idempotency.DeriveID("refund", f.account(), key).String()

	order := f.keys("show", id)
	require.Regexp(t, `(?m)^found +order `+id+`, partially_refunded$`, order)
	require.Regexp(t, `(?m)^refund of the order +`+refund+`, succeeded, 100 usd$`, order)
	require.Regexp(t, `(?m)^20.{17} +refund\.succeeded `, order)
	for _, name := range []string{refund, providerRefund} {
		require.Regexp(t, `(?m)^found +refund `+refund+`, succeeded$`, f.keys("show", name), name)
	}
}
