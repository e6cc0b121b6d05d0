package events_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
	"example.com/orders-api/events"
	"example.com/orders-api/internal/jobs"
)

func TestDeliver(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	endpoint := newShop(t, nil)
	secret := f.set(endpoint.URL + "/events?shop=1")
	order, refund := uuid.New(), uuid.New()
	f.stage(f.account, events.Event{Type: events.RefundUpdated, OrderID: order, RefundID: refund})
	id := f.strings("SELECT id::text FROM staged_jobs")[0]

	f.pass(jobs.Result{events.Sent: 1})
	f.pass(jobs.Result{})
	require.Empty(t, f.strings("SELECT id::text FROM staged_jobs"))
	require.Equal(t, []string{"event.sent order " + order.String()}, f.strings("SELECT action || ' ' || resource_type || ' ' || resource_id FROM audit_records"))

	require.Len(t, endpoint.received(), 1)
	got := endpoint.received()[0]
	require.Equal(t, "application/json", got.header.Get("Content-Type"))
	require.Equal(t, id, got.header.Get("webhook-id"))
	event, err := got.verify(secret)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), event.Timestamp, time.Minute)
	require.JSONEq(t, `{"id":"`+id+`","type":"refund.updated","timestamp":"`+event.Timestamp.Format("2006-01-02T15:04:05.000000Z")+
		`","data":{"order_id":"`+order.String()+`","refund_id":"`+refund.String()+`"}}`, got.body)
	require.Equal(t, client.EventData{OrderID: order.String(), RefundID: refund.String()}, event.Data)
	sent, err := strconv.ParseInt(got.header.Get("webhook-timestamp"), 10, 64)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), time.Unix(sent, 0), time.Minute)
}
