package orders

import (
	"context"
	"errors"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
)

// What happens while the customer must approve the payment (3-D Secure).

// ActionRequiredError is a payment that its customer must approve first. It wraps
// [idempotency.ErrActionRequired]: the order continues when its key runs again.
type ActionRequiredError struct {
	Action          payments.Action
	PaymentIntentID string
}

func (e *ActionRequiredError) Error() string { return "the customer must approve the payment" }

func (e *ActionRequiredError) Unwrap() error { return idempotency.ErrActionRequired }

// awaitAction ends the run of a payment that its customer must approve. The status of
// the order is recorded once.
func (r *orderRun) awaitAction(ctx context.Context, intent payments.Intent) (idempotency.Record, error) {
	if r.order.offSession || intent.Action == nil {
		return r.cancel(ctx, authenticationRequired())
	}
	r.action = intent.Action
	if r.order.Status == StatusRequiresAction {
		return nil, r.actionRequired()
	}
	r.order.Status = StatusRequiresAction
	return r.recordAction, nil
}

// recordAction records that the customer must approve the payment, before the client gets
// the client secret: from then on, a decline alone does not end the payment (R23). The
// request itself ends when this step runs again.
func (r *orderRun) recordAction(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
	setRequiresActionTx(tx, r.AccountID, r.order.ID)
	r.auditTx(tx, "order.requires_action", map[string]any{"payment_intent_id": *r.order.PaymentIntentID})
	return idempotency.Advance(pointChargeCreated), nil
}

// actionRequired returns the error of a run that has recorded the action.
func (r *orderRun) actionRequired() error {
	return &ActionRequiredError{Action: *r.action, PaymentIntentID: *r.order.PaymentIntentID}
}

// RequiredAction returns the action that the order of a key requires, read from the
// provider: nothing stores its client secret. If the customer has acted, it runs the key
// and returns nil.
func (s *Service) RequiredAction(ctx context.Context, key KeyStatus) (*ActionRequiredError, error) {
	order, err := findOrder(ctx, s.pool, key.AccountID, key.OrderID)
	if err != nil {
		return nil, mustExist(err, "the order of key", key.ID)
	}
	reading, cancel := s.stepContext(ctx)
	defer cancel()
	intent, failed := s.readIntent(reading, order)
	if failed != nil {
		return nil, s.retryLater(ErrProviderUnavailable, failed, "order_id", order.ID, "key_id", key.ID)
	}
	if intent.Action != nil {
		return &ActionRequiredError{Action: *intent.Action, PaymentIntentID: intent.ID}, nil
	}
	var again *ActionRequiredError
	if _, err = s.Resume(ctx, key.AccountID, key.ID); errors.As(err, &again) {
		return again, nil
	}
	return nil, nil // the status of the key shows what the run has done
}
