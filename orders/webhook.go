package orders

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
)

// What a delivery to the webhook is refused with, for callers that do not know
// the provider.
var (
	// ErrWebhooksOff says that no webhook secret is configured.
	ErrWebhooksOff = payments.ErrWebhooksOff

	// ErrEventRefused says that a delivery was not signed by the provider, or not
	// within the last minutes.
	ErrEventRefused = payments.ErrSignature
)

// Event is an event of the provider, and what came of it.
type Event struct {
	ID    string
	Type  string
	KeyID uuid.UUID // of the request it is about; uuid.Nil when it is none of ours

	// RefundID is the refund that followed what the provider says of it now, or
	// uuid.Nil.
	RefundID uuid.UUID

	// Result is that of the run. It holds no response when somebody else was
	// working on the key.
	Result idempotency.Result
}

// HandleEvent takes a delivery of the provider: the body as it came and its
// signature. It is a hint and nothing more: the key that the event's metadata
// names resumes now instead of later, and what became of the payment is asked
// of the provider. Thus an event that is old, repeated, out of order or untrue
// changes nothing. An event about a refund of a finished key applies the status
// that the provider reports for that refund now.
//
// An error other than [ErrWebhooksOff] and [ErrEventRefused] says that the key
// is unfinished still, or that the provider could not be asked about the refund,
// so that the event should be delivered again.
func (s *Service) HandleEvent(ctx context.Context, payload []byte, signature string) (Event, error) {
	delivered, err := s.payments.Event(payload, signature)
	if err != nil {
		return Event{}, err
	}
	event := Event{ID: delivered.ID, Type: delivered.Type}
	accountID, keyID, ours := namedBy(delivered)
	if !ours {
		return event, nil
	}
	result, err := s.Resume(ctx, accountID, keyID)
	known := !errors.Is(err, idempotency.ErrNotFound) // else another program's, another database's, or reaped
	if known {
		event.KeyID = keyID
	}
	busy := errors.Is(err, idempotency.ErrInProgress)
	switch {
	case delivered.RefundID != "" && (!known || busy || result.Replayed):
		// A run that is under way may have asked before this happened, and no other
		// event may follow.
		event.RefundID, err = s.syncRefundFromEvent(ctx, accountID, delivered)
		return event, err
	case !known:
		return event, nil
	case busy, event.Type == "payment_intent.processing" && stillProcessing(err):
		// Events overtake our own commits all the time; and when the provider has
		// decided it sends another one.
		event.Result = result
		return event, nil
	default:
		event.Result = result
		return event, err
	}
}

// syncRefundFromEvent applies the provider's status of the refund that an event is
// about, and returns our id of the refund, or uuid.Nil if it is not ours.
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

// stillProcessing says whether a run ended without an outcome because the
// provider has none.
func stillProcessing(err error) bool {
	var answer *payments.Error
	return errors.As(err, &answer) && answer.Code == string(payments.StatusProcessing)
}

// namedBy reads back what createIntent, or a refund, put into the metadata.
// Whoever else makes payments at the provider may have written anything there.
func namedBy(event payments.Event) (accountID, keyID uuid.UUID, ours bool) {
	if event.IntentID == "" {
		return uuid.Nil, uuid.Nil, false
	}
	accountID, noAccount := uuid.Parse(event.Metadata["account_id"])
	keyID, noKey := uuid.Parse(event.Metadata["idempotency_key_id"])
	return accountID, keyID, noAccount == nil && noKey == nil
}
