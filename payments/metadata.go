package payments

import "github.com/google/uuid"

// MetadataOrderID is the name of the order's id in the metadata.
const MetadataOrderID = "order_id"

// Metadata has the ids that the provider stores with a payment or a refund of ours. Their names never
// change, because payments and refunds are found by them.
type Metadata struct {
	AccountID, OrderID, KeyID uuid.UUID
	RefundID                  uuid.UUID // uuid.Nil in that of a payment
}

// Encode returns the metadata as it is sent.
func (m Metadata) Encode() map[string]string {
	encoded := map[string]string{
		"account_id":         m.AccountID.String(),
		MetadataOrderID:      m.OrderID.String(),
		"idempotency_key_id": m.KeyID.String(),
	}
	if m.RefundID != uuid.Nil {
		encoded["refund_id"] = m.RefundID.String()
	}
	return encoded
}

// ParseMetadata reads an object's metadata. An id that is missing or malformed is uuid.Nil, as in an
// object of another program.
func ParseMetadata(encoded map[string]string) (m Metadata) {
	m.AccountID, _ = uuid.Parse(encoded["account_id"])
	m.OrderID, _ = uuid.Parse(encoded[MetadataOrderID])
	m.KeyID, _ = uuid.Parse(encoded["idempotency_key_id"])
	m.RefundID, _ = uuid.Parse(encoded["refund_id"])
	return m
}
