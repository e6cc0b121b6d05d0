package reconcile

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

// Result is what an event about a payment has caused.
type Result struct {
	KeyID      uuid.UUID          // uuid.Nil if we have no such key
	Run        idempotency.Result // of the key
	Unfinished error              // why the key has no response, although the event need not be repeated
}

// Verify verifies the signature of an unchanged body, and returns the errors of [payments.Client.Event].
func (s *Service) Verify(payload []byte, signature string) (Event, error) {
	delivered, err := s.Orders.Payments.Event(payload, signature)
	ids := payments.ParseMetadata(delivered.Metadata)
	return Event{Event: delivered, AccountID: ids.AccountID, keyID: ids.KeyID}, err
}

// Handle records an event about a refund or a dispute for the worker, and resumes the key of an event about a
// payment. The run reads the outcome from the provider, so an old, repeated or wrong event changes nothing. After an
// error, the provider should send the event again. The error is [idempotency.ErrInProgress] if the event decides a
// payment while another run, which may have read the payment before, holds the key.
func (s *Service) Handle(ctx context.Context, event Event) (result Result, err error) {
	if event.IsChange() {
		return result, s.record(ctx, []payments.Event{event.Event}, nil)
	}
	if event.AccountID == uuid.Nil || event.keyID == uuid.Nil || event.IntentID == "" {
		return result, nil
	}
	result.Run, err = s.Orders.Engine.Resume(ctx, event.AccountID, event.keyID)
	if errors.Is(err, idempotency.ErrNotFound) { // reaped, or of another database
		return result, nil
	}
	result.KeyID = event.keyID
	if errors.Is(err, idempotency.ErrActionRequired) || event.undecided() && (errors.Is(err, idempotency.ErrInProgress) || stillProcessing(err)) {
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
