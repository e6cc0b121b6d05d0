package main_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/migrations/dbtest"
)

// The fake sends a webhook when a pending refund is settled.
func TestRun_refund(t *testing.T) {
	t.Parallel()
	a, _ := startRun(t, programtest.Environ(t, "DATABASE_URL="+dbtest.URL(dbtest.Empty(t)), "LISTEN_ADDR=127.0.0.1:0"))
	id := programtest.RequirePaid(t, a.MustOrder("an-order-to-refund-1", strings.Replace(programtest.Tea, "pm_card_visa", "pm_card_pendingRefund", 1)))
	refund := a.MustDo(http.MethodPost, "/v1/orders/"+id+"/refunds", "{}", http.Header{"Idempotency-Key": {"a-pending-refund-1"}})
	require.Equal(t, http.StatusCreated, refund.Status, refund.Body)
	a.WaitFor(&a.Stderr, `msg="provider_change done"`)
	a.Stop()
}
