package api

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
)

// A verified event that finds no free slot is rejected, and named in the log.
func TestWebhooks_tooManyEvents(t *testing.T) {
	t.Parallel()
	webhooks := newWebhooks(nil)
	for range maxWebhooks {
		webhooks.running <- struct{}{}
	}
	event, err := webhooks.handle(t.Context(), orders.VerifiedEvent{ID: "evt_1", Type: "charge.refunded"})
	require.ErrorIs(t, err, idempotency.ErrOverloaded)
	require.Equal(t, orders.Event{ID: "evt_1", Type: "charge.refunded"}, event)
}
