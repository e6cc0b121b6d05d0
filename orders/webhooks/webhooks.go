// Package webhooks handles the provider's events. An event only starts a run: the outcome is read
// from the provider, not from the event.
package webhooks

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/operations"
	"example.com/orders-api/orders/provider"
	"example.com/orders-api/payments"
)

// Event is an event with a valid signature. Its ids are read from the metadata of the event's object.
// They are uuid.Nil if another program created the object.
type Event struct {
	payments.Event

	AccountID, keyID, refundID uuid.UUID
}

// Result is what an event has caused.
type Result struct {
	KeyID    uuid.UUID // uuid.Nil if we have no such key
	RefundID uuid.UUID // the refund whose status was updated, or uuid.Nil

	RefundFailed bool               // the refund failed after its response was stored
	Run          idempotency.Result // empty if RefundID is set
	Unfinished   error              // why the key has no response, although the event need not be repeated
}

// Handler handles events.
type Handler struct {
	Payments   *payments.Client
	Operations *operations.Service
}

// Verify verifies the signature of an unchanged body, and returns the errors of [payments.Client.Event].
func (h Handler) Verify(payload []byte, signature string) (Event, error) {
	delivered, err := h.Payments.Event(payload, signature)
	ids := provider.ParseMetadata(delivered.Metadata)
	return Event{Event: delivered, AccountID: ids.AccountID, keyID: ids.KeyID, refundID: ids.RefundID}, err
}

// Handle resumes the key of an event. The run reads the outcome from the provider, so an old,
// repeated or wrong event changes nothing. If no run can record the status of a refund, because its
// key is finished, reaped or held by another run, Handle records it. After an error, the provider
// should send the event again. The error is [idempotency.ErrInProgress] if the event decides a
// payment while another run, which may have read the payment before, holds the key.
func (h Handler) Handle(ctx context.Context, event Event) (result Result, err error) {
	if event.AccountID == uuid.Nil || event.keyID == uuid.Nil || event.IntentID == "" {
		return result, nil
	}
	run, err := h.Operations.Resume(ctx, event.AccountID, event.keyID)
	known := !errors.Is(err, idempotency.ErrNotFound) // the key is reaped, or of another database
	if known {
		result.KeyID = event.keyID
	}
	busy := errors.Is(err, idempotency.ErrInProgress)
	accepted := !known || errors.Is(err, idempotency.ErrActionRequired) || event.undecided() && (busy || stillProcessing(err))
	if event.RefundID != "" && event.refundID != uuid.Nil && (!known || busy || run.Replayed) {
		// A run in progress may have read the refund before its status changed.
		failed, syncErr := h.Operations.Sync(ctx, "refund", event.AccountID, event.refundID, event.RefundID)
		if !errors.Is(syncErr, operations.ErrNotFound) {
			result.RefundID, result.RefundFailed = event.refundID, failed
			return result, syncErr
		}
		accepted = true
	}
	result.Run = run
	if accepted {
		result.Unfinished = err
		return result, nil
	}
	return result, err
}

// undecided reports whether another event follows when the payment is decided.
func (e Event) undecided() bool {
	return slices.Contains([]string{"payment_intent.created", "payment_intent.requires_action", "payment_intent.processing"}, e.Type)
}

func stillProcessing(err error) bool {
	failed, ok := errors.AsType[*payments.Error](err)
	return ok && failed.Code == string(payments.StatusProcessing)
}
