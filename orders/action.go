package orders

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
)

// ActionRequiredError means that the customer must approve the payment (3-D Secure). It
// wraps [idempotency.ErrActionRequired].
type ActionRequiredError struct {
	Action          payments.Action
	PaymentIntentID string
}

func (e *ActionRequiredError) Error() string { return "the customer must approve the payment" }

func (e *ActionRequiredError) Unwrap() error { return idempotency.ErrActionRequired }

// awaitAction ends the run until the customer has acted, after it has recorded the
// order's status once.
func (r *orderRun) awaitAction(ctx context.Context, intent payments.Intent) (idempotency.Record, error) {
	if r.order.OffSession || intent.Action == nil {
		const code = "authentication_required" // Stripe's own decline of an off-session payment
		const text = "Your card was declined. This transaction requires authentication."
		return r.cancel(ctx, declined(payments.Decline{Code: code, DeclineCode: code, Message: text}))
	}
	r.action = intent.Action
	if r.order.Status == StatusRequiresAction {
		return nil, r.actionRequired()
	}
	r.order.Status = StatusRequiresAction
	return r.recordAction, nil
}

// recordAction records the order's status before the client receives the client secret:
// from then on, a decline alone does not end the payment (R23). The repeated step then
// returns actionRequired.
func (r *orderRun) recordAction(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
	updateOrderTx(tx, r.AccountID, r.order.ID, "status = 'requires_action'")
	r.auditTx(tx, "order.requires_action", map[string]any{"payment_intent_id": *r.order.PaymentIntentID})
	return idempotency.Advance(pointChargeCreated), nil
}

func (r *orderRun) actionRequired() error {
	return &ActionRequiredError{Action: *r.action, PaymentIntentID: *r.order.PaymentIntentID}
}

// RequiredAction reads the action that the order of a key requires from the provider,
// because the client secret is never stored. If the customer has acted, or the charge window
// is over (R24), it resumes the key instead and returns nil: then the key's status shows the
// result of the run.
func (s *Service) RequiredAction(ctx context.Context, key KeyStatus) (*ActionRequiredError, error) {
	if key.OrderID == uuid.Nil {
		return nil, nil // of another operation, perhaps of a newer version (R18)
	}
	order, err := findOrder(ctx, s.Pool, key.AccountID, key.OrderID)
	if err != nil {
		return nil, mustExist(err, "the order of key", key.ID)
	}
	if !s.windowOver(order, s.Engine.NextLeaseEnd(key.Status)) {
		reading, cancel := s.stepContext(ctx)
		defer cancel()
		intent, failed := s.readIntent(reading, order)
		switch {
		case failed != nil:
			return nil, s.retryLater(ErrProviderUnavailable, failed, "order_id", order.ID, "key_id", key.ID)
		case intent.Action != nil:
			return &ActionRequiredError{Action: *intent.Action, PaymentIntentID: intent.ID}, nil
		}
	}
	_, err = s.Resume(ctx, key.AccountID, key.ID)
	again, required := errors.AsType[*ActionRequiredError](err)
	_, unfinished := errors.AsType[*ProviderError](err)
	if required || unfinished || errors.Is(err, idempotency.ErrInProgress) {
		return again, nil
	}
	return nil, err
}
