package events_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/events"
)

func TestStageTx(t *testing.T) {
	t.Parallel()
	const selectStaged = "SELECT id::text || ' ' || kind || ' ' || args::text FROM staged_jobs ORDER BY created_at, args"
	f := newFixture(t)
	order, refund := uuid.MustParse("3eeb7e96-e59c-840f-9cb1-a089daba079f"), uuid.MustParse("b8f0a3c1-7d42-8e19-a5c6-20d4f1e93b77")
	once := []events.ShopEvent{
		{Type: events.OrderPaid, OrderID: order},
		{Type: events.RefundCreated, OrderID: order, RefundID: refund},
	}
	batch := &pgx.Batch{}
	events.Stager(false).StageTx(batch, f.account, once[0])
	require.Zero(t, batch.Len(), "the service has no endpoint")

	f.stage(once...)
	f.stage(once...)
	want := []string{
		`3297858b-30ef-8357-97c2-538c2f5e19c7 event {"type": "order.paid", "order_id": "` + order.String() + `"}`,
		`b00a8cb1-6876-8eb4-b403-182afa971a4c event {"type": "refund.created", "order_id": "` + order.String() + `", "refund_id": "` + refund.String() + `"}`,
	}
	require.Equal(t, want, f.strings(selectStaged), "once each")

	updated := events.ShopEvent{Type: events.DisputeUpdated, OrderID: order, DisputeID: "dp_1"}
	f.stage(updated, updated)
	all := f.strings(selectStaged)
	require.Len(t, all, 4, "each update is an event")
	for _, job := range all[2:] {
		require.Contains(t, job, `{"type": "dispute.updated", "order_id": "`+order.String()+`", "dispute_id": "dp_1"}`)
	}
}
