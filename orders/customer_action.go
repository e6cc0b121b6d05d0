package orders

import (
	"context"
	"errors"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/operations"
	"example.com/orders-api/payments"
)

// Approval is the action of a payment that the customer must approve (3-D Secure).
type Approval struct {
	payments.Action
	PaymentIntentID string
}

// MarshalJSON includes the client secret.
func (a Approval) MarshalJSON() ([]byte, error) {
	return operations.EncodeJSON(struct {
		Type            string `json:"type"`
		ClientSecret    string `json:"client_secret"`
		PaymentIntentID string `json:"payment_intent_id"`
	}{a.Type, a.ClientSecret(), a.PaymentIntentID})
}

func (r *orderRun) awaitAction(ctx context.Context, intent payments.Intent) (idempotency.RecordFunc, error) {
	if r.order.OffSession || intent.Action == nil {
		const code = "authentication_required" // Stripe's own decline of an off-session payment
		return r.cancel(ctx, declined(payments.Decline{Code: code, DeclineCode: code}))
	}
	r.action = intent.Action
	if r.order.Status == StatusRequiresAction {
		return nil, r.actionRequired()
	}
	r.order.Status = StatusRequiresAction
	return r.recordAction, nil
}

// recordAction records the status before the client receives the client secret: from then on, a
// decline does not end the payment (R23). The step then repeats.
func (r *orderRun) recordAction(ctx context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
	updateOrderTx(tx, r.AccountID, r.order.ID, "status = 'requires_action'")
	r.auditTx(ctx, tx, "order.requires_action", map[string]any{"payment_intent_id": *r.order.PaymentIntentID})
	return idempotency.Advance(pointChargeCreated), nil
}

func (r *orderRun) actionRequired() error {
	return &operations.ActionRequiredError{Action: Approval{*r.action, *r.order.PaymentIntentID}}
}

// requiredAction reads the action from the provider, because the client secret is never stored.
// Without one, or after the charge window (R24), it resumes the key.
func (s *Service) requiredAction(ctx context.Context, key idempotency.StoredKey) (*operations.ActionRequiredError, error) {
	order, err := findOrder(ctx, s.config.Pool, key.AccountID, orderID(key.AccountID, key.Key))
	if err != nil {
		return nil, mustExist(err, "the order of key", key.ID)
	}
	if !s.windowOver(order, s.config.Engine.NextLeaseEnd(key)) {
		reading, cancel := s.stepContext(ctx)
		defer cancel()
		intent, failed := s.readIntent(reading, order)
		switch {
		case failed != nil:
			return nil, s.retryLater(operations.ErrProviderUnavailable, failed, "order_id", order.ID, "key_id", key.ID)
		case intent.Action != nil:
			return &operations.ActionRequiredError{Action: Approval{*intent.Action, intent.ID}}, nil
		}
	}
	_, err = s.config.Operations.Resume(ctx, key.AccountID, key.ID)
	again, required := errors.AsType[*operations.ActionRequiredError](err)
	_, unfinished := errors.AsType[*operations.ProviderError](err)
	if required || unfinished || errors.Is(err, idempotency.ErrInProgress) {
		return again, nil
	}
	return nil, err
}
