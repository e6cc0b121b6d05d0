package reconcile

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
)

// Result is what an event about a payment has caused.
type Result struct {
	KeyID      uuid.UUID          // uuid.Nil if we have no such key
	Run        idempotency.Result // of the key
	Unfinished error              // why the key has no response, although the event need not be repeated
}

// Handle records an event about a refund or a dispute for the worker, and resumes the key of an event about a
// payment. The run reads the outcome from the provider, so an old, repeated or wrong event changes nothing. After an
// error, the provider should send the event again. The error is [idempotency.ErrInProgress] if the event decides a
// payment while another run, which may have read the payment before, holds the key.
func (s *Service) Handle(ctx context.Context, event payments.ProviderEvent) (result Result, err error) {
	if event.IsChange() {
		return result, s.record(ctx, []payments.ProviderEvent{event}, nil)
	}
	ids := payments.ParseMetadata(event.Metadata)
	if ids.AccountID == uuid.Nil || ids.KeyID == uuid.Nil || event.IntentID == "" { // another program's
		return result, nil
	}
	result.Run, err = s.Orders.Engine.Resume(ctx, ids.AccountID, ids.KeyID)
	if errors.Is(err, idempotency.ErrNotFound) { // reaped, or of another database
		return result, nil
	}
	result.KeyID = ids.KeyID
	if errors.Is(err, idempotency.ErrActionRequired) || undecided(event) && (errors.Is(err, idempotency.ErrInProgress) || stillProcessing(err)) {
		result.Unfinished, err = err, nil
	}
	return result, err
}

// undecided reports whether another event follows when the payment is decided.
func undecided(event payments.ProviderEvent) bool {
	return slices.Contains([]string{"payment_intent.created", "payment_intent.requires_action", "payment_intent.processing"}, event.Type)
}

func stillProcessing(err error) bool {
	failed, ok := errors.AsType[*payments.Error](err)
	return ok && failed.Code == string(payments.StatusProcessing)
}
