package events

import (
	"crypto/sha256"

	"github.com/google/uuid"

	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/internal/postgres"
)

// ShopEvent names what has changed.
type ShopEvent struct {
	Type      string    `json:"type,omitempty"`
	OrderID   uuid.UUID `json:"order_id"`
	RefundID  uuid.UUID `json:"refund_id,omitzero"`
	DisputeID string    `json:"dispute_id,omitempty"` // the provider's
}

// The types. Those of the first group occur once per object, so their id is derived.
const (
	OrderPaid           = "order.paid"
	OrderPaymentFailed  = "order.payment_failed"
	OrderRequiresAction = "order.requires_action"
	RefundCreated       = "refund.created"

	RefundUpdated  = "refund.updated"
	DisputeUpdated = "dispute.updated"
)

// Kind is that of the events' jobs.
const Kind = "event"

// Stager reports whether the service has an endpoint. Without one, nothing is staged.
type Stager bool

// StageTx queues the INSERT of an event's job in the transaction that records the change (R28, events to the
// shop).
func (s Stager) StageTx(tx postgres.Queuer, accountID uuid.UUID, e ShopEvent) {
	if s {
		jobs.StageTx(tx, accountID, e.id(), Kind, e)
	}
}

// id derives from the object if the event occurs once. If a failover loses the rows, the same event then gets
// the same id, which the shop may know.
func (e ShopEvent) id() uuid.UUID {
	switch e.Type {
	case RefundUpdated, DisputeUpdated:
		return uuid.Must(uuid.NewV7())
	case RefundCreated:
		return uuid.NewHash(sha256.New(), e.RefundID, []byte("orders-api event "+e.Type), 8)
	default:
		return uuid.NewHash(sha256.New(), e.OrderID, []byte("orders-api event "+e.Type), 8)
	}
}
