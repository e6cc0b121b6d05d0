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

// VerifiedEvent is an event with a valid signature.
type VerifiedEvent struct {
	ID, Type  string
	AccountID uuid.UUID // uuid.Nil if the event is not ours
	keyID     uuid.UUID
	delivered payments.Event
}

// VerifyEvent verifies the signature of a delivery, whose body must be unchanged. Errors
// are [ErrWebhooksOff], [ErrEventRefused], [ErrInvalidEvent] and [ErrThinEvent].
func (s *Service) VerifyEvent(payload []byte, signature string) (VerifiedEvent, error) {
	delivered, err := s.payments.Event(payload, signature)
	if err != nil {
		return VerifiedEvent{}, err
	}
	event := VerifiedEvent{ID: delivered.ID, Type: delivered.Type, delivered: delivered}
	event.AccountID, event.keyID = keyFromMetadata(delivered)
	return event, nil
}

// Event is the result of [Service.HandleEvent].
type Event struct {
	ID    string
	Type  string
	KeyID uuid.UUID // uuid.Nil if the event is not ours

	// RefundID is the refund whose status was applied, or uuid.Nil.
	RefundID uuid.UUID

	// Result is that of the run, empty if another run holds the key.
	Result idempotency.Result
}

// HandleEvent uses an event only as a hint: it resumes the key of its metadata, and the run
// reads the outcome from the provider. So an old, repeated or wrong event changes nothing.
// If the key is finished, an event about its refund applies the refund's status.
//
// After an error, the provider should deliver the event again.
func (s *Service) HandleEvent(ctx context.Context, verified VerifiedEvent) (Event, error) {
	event := Event{ID: verified.ID, Type: verified.Type}
	if verified.AccountID == uuid.Nil {
		return event, nil
	}
	result, err := s.Resume(ctx, verified.AccountID, verified.keyID)
	known := !errors.Is(err, idempotency.ErrNotFound) // of another database, or reaped
	if known {
		event.KeyID = verified.keyID
	}
	busy := errors.Is(err, idempotency.ErrInProgress)
	switch {
	case verified.delivered.RefundID != "" && (!known || busy || result.Replayed):
		// A run in progress may have read the refund before this change.
		event.RefundID, err = s.syncRefundFromEvent(ctx, verified.AccountID, verified.delivered)
		return event, err
	case !known:
		return event, nil
	case busy, errors.Is(err, idempotency.ErrActionRequired), event.Type == "payment_intent.processing" && stillProcessing(err):
		// Another event follows when the payment is decided.
		event.Result = result
		return event, nil
	default:
		event.Result = result
		return event, err
	}
}

// syncRefundFromEvent returns the id of the event's refund, or uuid.Nil if it is not ours.
func (s *Service) syncRefundFromEvent(ctx context.Context, accountID uuid.UUID, event payments.Event) (uuid.UUID, error) {
	id, err := uuid.Parse(event.Metadata["refund_id"])
	if err != nil {
		return uuid.Nil, nil
	}
	err = s.SyncRefund(ctx, accountID, id, event.RefundID)
	if errors.Is(err, ErrNotFound) {
		return uuid.Nil, nil
	}
	return id, err
}

func stillProcessing(err error) bool {
	var failed *payments.Error
	return errors.As(err, &failed) && failed.Code == string(payments.StatusProcessing)
}

// keyFromMetadata returns the ids that createIntent or a refund put into the metadata, or
// uuid.Nil. Other programs may use the same provider account.
func keyFromMetadata(event payments.Event) (accountID, keyID uuid.UUID) {
	accountID, err := uuid.Parse(event.Metadata["account_id"])
	if err != nil || event.IntentID == "" {
		return uuid.Nil, uuid.Nil
	}
	if keyID, err = uuid.Parse(event.Metadata["idempotency_key_id"]); err != nil {
		return uuid.Nil, uuid.Nil
	}
	return accountID, keyID
}
