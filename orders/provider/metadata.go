package provider

import "github.com/google/uuid"

// Names in the metadata. They never change, because payments and refunds are found by their values.
const (
	MetadataOrderID   = "order_id"
	metadataAccountID = "account_id"
	metadataRefundID  = "refund_id"
	metadataKeyID     = "idempotency_key_id"
)

// Metadata has the ids that the provider stores with a payment or a refund of ours.
type Metadata struct {
	AccountID, OrderID, KeyID uuid.UUID
	RefundID                  uuid.UUID // uuid.Nil in that of a payment
}

// Encode returns the metadata as it is sent.
func (m Metadata) Encode() map[string]string {
	encoded := map[string]string{
		metadataAccountID: m.AccountID.String(),
		MetadataOrderID:   m.OrderID.String(),
		metadataKeyID:     m.KeyID.String(),
	}
	if m.RefundID != uuid.Nil {
		encoded[metadataRefundID] = m.RefundID.String()
	}
	return encoded
}

// ParseMetadata reads an object's metadata. An id that is missing or malformed is uuid.Nil, as in an
// object of another program.
func ParseMetadata(encoded map[string]string) (m Metadata) {
	m.AccountID, _ = uuid.Parse(encoded[metadataAccountID])
	m.OrderID, _ = uuid.Parse(encoded[MetadataOrderID])
	m.KeyID, _ = uuid.Parse(encoded[metadataKeyID])
	m.RefundID, _ = uuid.Parse(encoded[metadataRefundID])
	return m
}
