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

	// ErrEventRefused means that the provider did not sign a delivery, or not within
	// the last minutes.
	ErrEventRefused = payments.ErrSignature

	// ErrInvalidEvent means that the provider signed something that is not an event.
	ErrInvalidEvent = payments.ErrInvalidEvent

	// ErrThinEvent means that the provider signed an event that does not contain the
	// object that it is about.
	ErrThinEvent = payments.ErrThinEvent
)

// VerifiedEvent is an event whose signature was verified.
type VerifiedEvent struct {
	ID, Type  string
	AccountID uuid.UUID // uuid.Nil if the event is not about a request of ours
	keyID     uuid.UUID
	delivered payments.Event
}

// VerifyEvent verifies a delivery of the provider: the unchanged body and its
// signature. Errors are [ErrWebhooksOff], [ErrEventRefused], [ErrInvalidEvent] and
// [ErrThinEvent].
func (s *Service) VerifyEvent(payload []byte, signature string) (VerifiedEvent, error) {
	delivered, err := s.payments.Event(payload, signature)
	if err != nil {
		return VerifiedEvent{}, err
	}
	event := VerifiedEvent{ID: delivered.ID, Type: delivered.Type, delivered: delivered}
	event.AccountID, event.keyID = keyFromMetadata(delivered)
	return event, nil
}

// Event is the result of an event.
type Event struct {
	ID    string
	Type  string
	KeyID uuid.UUID // of the request that it is about; uuid.Nil if it is not ours

	// RefundID is the refund whose status was applied, or uuid.Nil.
	RefundID uuid.UUID

	// Result is that of the run. It has no response if another run holds the key.
	Result idempotency.Result
}

// HandleEvent uses an event only as a hint: the key that its metadata names is resumed,
// and the run reads the outcome from the provider. So an event that is old, repeated,
// out of order or untrue changes nothing. If the key is finished, an event about its
// refund makes us read and apply the refund's status.
//
// An error means that the key is still unfinished, or that the refund could not be
// read from the provider. The provider should repeat the event.
func (s *Service) HandleEvent(ctx context.Context, verified VerifiedEvent) (Event, error) {
	event := Event{ID: verified.ID, Type: verified.Type}
	if verified.AccountID == uuid.Nil {
		return event, nil
	}
	result, err := s.Resume(ctx, verified.AccountID, verified.keyID)
	known := !errors.Is(err, idempotency.ErrNotFound) // otherwise of another program or database, or reaped
	if known {
		event.KeyID = verified.keyID
	}
	busy := errors.Is(err, idempotency.ErrInProgress)
	switch {
	case verified.delivered.RefundID != "" && (!known || busy || result.Replayed):
		// A run in progress may have read the refund before this change, and this may be
		// the last event.
		event.RefundID, err = s.syncRefundFromEvent(ctx, verified.AccountID, verified.delivered)
		return event, err
	case !known:
		return event, nil
	case busy, errors.Is(err, idempotency.ErrActionRequired), event.Type == "payment_intent.processing" && stillProcessing(err):
		// Events often arrive before our commit. The provider sends another event when it
		// has decided, or when the customer has acted.
		event.Result = result
		return event, nil
	default:
		event.Result = result
		return event, err
	}
}

// syncRefundFromEvent applies the provider's status to the refund of an event, and
// returns its id if it is one of ours.
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

// stillProcessing reports whether a run has no outcome because the provider is still
// processing the payment.
func stillProcessing(err error) bool {
	var failed *payments.Error
	return errors.As(err, &failed) && failed.Code == string(payments.StatusProcessing)
}

// keyFromMetadata returns the key that createIntent, or a refund, put into the
// metadata. Other programs on the same provider account may have put anything there:
// then it returns uuid.Nil.
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
