package changes

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
)

// Event is a webhook with a valid signature. Its ids are read from the metadata of the event's object.
// They are uuid.Nil if another program created the object.
type Event struct {
	payments.Event

	AccountID, keyID uuid.UUID
}

// Result is what an event has caused.
type Result struct {
	KeyID      uuid.UUID          // uuid.Nil if we have no such key
	Run        idempotency.Result // of the key
	Unfinished error              // why the key has no response, although the event need not be repeated
}

// Verify verifies the signature of an unchanged body, and returns the errors of [payments.Client.Event].
func (i *Inbox) Verify(payload []byte, signature string) (Event, error) {
	delivered, err := i.Orders.Payments.Event(payload, signature)
	ids := payments.ParseMetadata(delivered.Metadata)
	return Event{Event: delivered, AccountID: ids.AccountID, keyID: ids.KeyID}, err
}

// Handle resumes the key of an event. The run reads the outcome from the provider, so an old, repeated or
// wrong event changes nothing. An event about a refund or a dispute is recorded, too, and the worker does the rest.
// After an error, the provider should send the event again. The error is [idempotency.ErrInProgress] if the event
// decides a payment while another run, which may have read the payment before, holds the key.
func (i *Inbox) Handle(ctx context.Context, event Event) (result Result, err error) {
	if event.AccountID != uuid.Nil && event.keyID != uuid.Nil && event.IntentID != "" {
		result.Run, err = i.Operations.Resume(ctx, event.AccountID, event.keyID)
		if !errors.Is(err, idempotency.ErrNotFound) { // reaped, or of another database
			result.KeyID = event.keyID
		}
	}
	switch {
	case event.IsChange():
		result.Unfinished = err
		return result, i.record(ctx, []payments.Event{event.Event}, nil)
	case errors.Is(err, idempotency.ErrNotFound) || errors.Is(err, idempotency.ErrActionRequired) ||
		event.undecided() && (errors.Is(err, idempotency.ErrInProgress) || stillProcessing(err)):
		result.Unfinished, err = err, nil
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
