package orders

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
)

// Errors of [Service.VerifyEvent], for callers that do not import payments.
var (
	// ErrWebhooksOff means that no webhook secret is configured.
	ErrWebhooksOff = payments.ErrWebhooksOff

	// ErrEventRefused means that a delivery has no recent signature of the provider.
	ErrEventRefused = payments.ErrSignature

	// ErrInvalidEvent means that a signed delivery is not an event.
	ErrInvalidEvent = payments.ErrInvalidEvent

	// ErrThinEvent means that an event does not contain its object.
	ErrThinEvent = payments.ErrThinEvent
)

// Event is an event with a valid signature.
type Event struct {
	payments.Event
	AccountID uuid.UUID // uuid.Nil if the event is not ours

	// Set by HandleEvent:
	KeyID    uuid.UUID          // uuid.Nil if the key is unknown
	RefundID uuid.UUID          // the refund whose status was applied, or uuid.Nil
	Result   idempotency.Result // of the run, empty if another run holds the key

	keyID uuid.UUID // of the metadata
}

// VerifyEvent verifies the signature of a delivery, whose body must be unchanged. Errors
// are [ErrWebhooksOff], [ErrEventRefused], [ErrInvalidEvent] and [ErrThinEvent].
func (s *Service) VerifyEvent(payload []byte, signature string) (Event, error) {
	delivered, err := s.Payments.Event(payload, signature)
	if err != nil {
		return Event{}, err
	}
	accountID, keyID := keyFromMetadata(delivered)
	return Event{Event: delivered, AccountID: accountID, keyID: keyID}, nil
}

// HandleEvent uses an event only as a hint: it resumes the key of its metadata, and the run
// reads the outcome from the provider. So an old, repeated or wrong event changes nothing.
// If the key is finished, an event about its refund applies the refund's status.
//
// After an error, the provider should deliver the event again.
func (s *Service) HandleEvent(ctx context.Context, event Event) (Event, error) {
	if event.AccountID == uuid.Nil {
		return event, nil
	}
	result, err := s.Resume(ctx, event.AccountID, event.keyID)
	known := !errors.Is(err, idempotency.ErrNotFound) // of another database, or reaped
	if known {
		event.KeyID = event.keyID
	}
	busy := errors.Is(err, idempotency.ErrInProgress)
	if event.Event.RefundID != "" && (!known || busy || result.Replayed) {
		// A run in progress may have read the refund before this change.
		event.RefundID, err = s.syncRefundFromEvent(ctx, event)
		return event, err
	}
	if !known {
		return event, nil
	}
	event.Result = result
	if busy || errors.Is(err, idempotency.ErrActionRequired) || event.Type == "payment_intent.processing" && stillProcessing(err) {
		return event, nil // another event follows when the payment is decided
	}
	return event, err
}

// syncRefundFromEvent returns the id of the event's refund, or uuid.Nil if it is not ours.
func (s *Service) syncRefundFromEvent(ctx context.Context, event Event) (uuid.UUID, error) {
	id, err := uuid.Parse(event.Metadata["refund_id"])
	if err != nil {
		return uuid.Nil, nil
	}
	err = s.SyncRefund(ctx, event.AccountID, id, event.Event.RefundID)
	if errors.Is(err, ErrNotFound) {
		return uuid.Nil, nil
	}
	return id, err
}

func stillProcessing(err error) bool {
	failed, ok := errors.AsType[*payments.Error](err)
	return ok && failed.Code == string(payments.StatusProcessing)
}

// keyFromMetadata returns the ids that createIntent or a refund put into the metadata, or
// uuid.Nil. Other programs may use the same provider account.
func keyFromMetadata(event payments.Event) (accountID, keyID uuid.UUID) {
	accountID, noAccount := uuid.Parse(event.Metadata["account_id"])
	keyID, noKey := uuid.Parse(event.Metadata["idempotency_key_id"])
	if noAccount != nil || noKey != nil || event.IntentID == "" {
		return uuid.Nil, uuid.Nil
	}
	return accountID, keyID
}
