// Package webhooks takes the provider's events. An event is only a hint: the outcome is read from
// the provider.
package webhooks

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/operations"
	"example.com/orders-api/payments"
)

// Errors of [Handler.Verify].
var (
	ErrOff     = payments.ErrWebhooksOff
	ErrRefused = payments.ErrSignature
	ErrInvalid = payments.ErrInvalidEvent
	ErrThin    = payments.ErrThinEvent
)

// Event is an event with a valid signature. The ids in its metadata are uuid.Nil if there are none,
// as in an event of another program.
type Event struct {
	payments.Event

	AccountID, keyID, refundID uuid.UUID
}

// Result is what an event has caused.
type Result struct {
	KeyID    uuid.UUID // uuid.Nil if the key is unknown
	RefundID uuid.UUID // whose status was applied, or uuid.Nil

	RefundFailed bool               // after its response
	Run          idempotency.Result // empty if another run holds the key
}

// Handler handles events.
type Handler struct {
	Payments   *payments.Client
	Operations *operations.Service
}

// Verify verifies the signature of an unchanged body.
func (h Handler) Verify(payload []byte, signature string) (Event, error) {
	delivered, err := h.Payments.Event(payload, signature)
	event := Event{Event: delivered}
	event.AccountID, _ = uuid.Parse(delivered.Metadata["account_id"])
	event.keyID, _ = uuid.Parse(delivered.Metadata["idempotency_key_id"])
	event.refundID, _ = uuid.Parse(delivered.Metadata["refund_id"])
	return event, err
}

// Handle resumes the key of an event. The run reads the outcome from the provider, so an
// old, repeated or wrong event changes nothing. If the key is finished, Handle applies the
// refund's status. After an error, the provider should repeat the event.
func (h Handler) Handle(ctx context.Context, event Event) (result Result, err error) {
	if event.AccountID == uuid.Nil || event.keyID == uuid.Nil || event.IntentID == "" {
		return result, nil
	}
	run, err := h.Operations.Resume(ctx, event.AccountID, event.keyID)
	known := !errors.Is(err, idempotency.ErrNotFound) // of another database, or reaped
	if known {
		result.KeyID = event.keyID
	}
	busy := errors.Is(err, idempotency.ErrInProgress)
	if event.RefundID != "" && event.refundID != uuid.Nil && (!known || busy || run.Replayed) {
		// A run in progress may have read the refund before.
		result.RefundFailed, err = h.Operations.Sync(ctx, "refund", event.AccountID, event.refundID, event.RefundID)
		if errors.Is(err, operations.ErrNotFound) {
			return result, nil
		}
		result.RefundID = event.refundID
		return result, err
	}
	if !known {
		return result, nil
	}
	result.Run = run
	if busy || errors.Is(err, idempotency.ErrActionRequired) || event.Type == "payment_intent.processing" && stillProcessing(err) {
		return result, nil // another event follows when the payment is decided
	}
	return result, err
}

func stillProcessing(err error) bool {
	failed, ok := errors.AsType[*payments.Error](err)
	return ok && failed.Code == string(payments.StatusProcessing)
}
