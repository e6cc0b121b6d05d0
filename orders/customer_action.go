package orders

import (
	"context"

	"example.com/orders-api/events"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/payments"
)

// Approval is the action of a payment that the customer must approve (3-D Secure).
type Approval struct {
	payments.Action
	PaymentIntentID string
}

// MarshalJSON includes the client secret.
func (a Approval) MarshalJSON() ([]byte, error) {
	return httpjson.EncodeJSON(struct {
		Type            string `json:"type"`
		ClientSecret    string `json:"client_secret"`
		PaymentIntentID string `json:"payment_intent_id"`
	}{a.Type, a.ClientSecret(), a.PaymentIntentID})
}

func actionRequired(intent payments.Intent) error {
	return &httpjson.ActionRequiredError{Action: Approval{*intent.Action, intent.ID}}
}

// awaitAction ends the run, whose client receives the client secret. Before, it records the status, because from
// then on a decline does not end the payment (R23, cancel first).
func (r *orderRun) awaitAction(ctx context.Context, intent payments.Intent) (idempotency.RecordFunc, error) {
	switch {
	case r.order.OffSession, intent.Action == nil:
		const code = "authentication_required" // Stripe's own decline of an off-session payment
		return r.cancel(ctx, Declined(payments.Decline{Code: code, DeclineCode: code}))
	case r.order.Status == StatusRequiresAction:
		return nil, actionRequired(intent)
	}
	return func(ctx context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
		r.updateTx(tx, "status = 'requires_action'")
		r.service.Events.StageTx(tx, r.run.AccountID, events.ShopEvent{Type: events.OrderRequiresAction, OrderID: r.order.ID})
		r.auditTx(ctx, tx, "order.requires_action", map[string]any{"payment_intent_id": intent.ID})
		return idempotency.Pause(pointChargeCreated, func() error {
			if r.order.CancelRequested { // meanwhile, so the step closes the order (R29, durable cancel)
				return nil
			}
			return actionRequired(intent)
		}), nil
	}, nil
}

// CheckAction reads the action from the provider, because the client secret is never stored. After the
// charge window or the request of a cancel, no action is required (R24, charge window; R29, durable cancel).
func (op createOrder) CheckAction(ctx context.Context, key idempotency.StoredKey) error {
	s := op.service
	order, err := s.ofKey(ctx, key.AccountID, key.Key)
	if err != nil {
		return err
	}
	if order.CancelRequested || s.windowOver(order, s.Engine.NextLeaseEnd(key)) {
		return nil
	}
	ctx, cancel := s.Payments.StepContext(ctx)
	defer cancel()
	intent, failed := s.readIntent(ctx, order)
	switch {
	case failed != nil:
		return s.RetryLater(httpjson.ErrProviderUnavailable, failed, "order_id", order.ID, "key_id", key.ID)
	case intent.Action == nil:
		return nil
	default:
		return actionRequired(intent)
	}
}
