package payments

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// ClockSkew is how far the provider's clock may be from the database's.
const ClockSkew = time.Hour

// StepContext bounds the calls of a step, which read and send. Its deadline has no monotonic time, because
// that stops while a machine is suspended.
func (c *Client) StepContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, time.Now().Add(c.config.Timeout).Round(0))
}

// SendContext leaves two fifths of the step's remaining time for reading the result.
func SendContext(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, _ := ctx.Deadline()
	return context.WithDeadline(ctx, deadline.Add(-time.Until(deadline)*2/5))
}

// Key returns the provider key of a step's call. Its form never changes, because another key would
// be another payment (R5, derived ids). number counts the keys of the step from 1.
func Key(keyID uuid.UUID, step string, number int) string {
	key := "orders-api-" + keyID.String() + step
	if number > 1 {
		key += "-" + strconv.Itoa(number)
	}
	return key
}

// Failure returns the error of a call as an [*Error], or nil.
func Failure(err error) *Error {
	if err == nil {
		return nil
	}
	failed, ok := errors.AsType[*Error](err)
	if !ok {
		failed = &Error{NeedsOperator: true, Code: "unexpected_error"} // with Outcome Unknown, which is safe
	}
	return failed
}

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
