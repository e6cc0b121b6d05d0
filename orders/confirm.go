package orders

import (
	"context"
	"time"

	"example.com/orders-api/events"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/payments"
	"example.com/orders-api/receipts"
)

const processingRetryAfter = 30 * time.Second

// confirmIntent charges the card, unless the order must close. Stripe charges an intent at most once, so its
// status shows what an earlier confirm has done, at any age.
func (r *orderRun) confirmIntent(ctx context.Context) (idempotency.RecordFunc, error) {
	ctx, cancel := r.service.Payments.StepContext(ctx)
	defer cancel()
	if err := r.load(ctx); err != nil {
		return nil, err
	}
	open := r.closeReason() == nil
	if r.justCreated && open {
		return r.confirm(ctx)
	}
	// An earlier run may have confirmed the intent, so read it before acting (R12, read first).
	intent, failed := r.service.readIntent(ctx, r.order)
	switch {
	case failed != nil:
		return nil, r.retryLater(httpjson.ErrOutcomeUnknown, failed)
	case intent.Status == payments.StatusRequiresConfirmation && open:
		return r.confirm(ctx)
	default:
		return r.settle(ctx, intent)
	}
}

func (r *orderRun) confirm(ctx context.Context) (idempotency.RecordFunc, error) {
	firstConfirm := r.justCreated
	r.justCreated = false
	intent, failed := r.sendConfirm(ctx)
	switch {
	case failed == nil:
		return r.settle(ctx, intent)
	case failed.Outcome == payments.Declined && failed.Intent != nil &&
		failed.Intent.Status == payments.StatusRequiresPaymentMethod && r.order.Status == StatusPending:
		// Stripe dropped the card, and no customer has the client secret, because the order has never
		// required an action. So the intent cannot be charged any more.
		return r.recordFailure(DeclinedBy(failed)), nil
	case failed.Outcome == payments.NotExecuted && firstConfirm:
		return nil, r.retryLater(httpjson.ErrProviderUnavailable, failed)
	}

	// The outcome is unknown, or the error may be the effect of an earlier confirm.
	intent, unread := r.service.readIntent(ctx, r.order)
	switch {
	case unread != nil:
		return nil, r.retryLater(httpjson.ErrOutcomeUnknown, unread)
	case intent.Status != payments.StatusRequiresConfirmation:
		return r.settle(ctx, intent)
	case failed.Outcome == payments.Declined:
		return r.cancel(ctx, DeclinedBy(failed))
	case failed.Outcome == payments.Refused:
		return r.cancel(ctx, RefusedBy(failed))
	case failed.SavedUnderKey, failed.Outcome == payments.UnexpectedState:
		r.order.ConfirmKeyNumber++
		return r.repeatWithNextKey(pointChargeCreated, httpjson.ErrOutcomeUnknown, failed)
	default:
		return nil, r.retryLater(httpjson.ErrOutcomeUnknown, failed) // the confirm may still arrive
	}
}

// settle decides by the intent's status. A charge or a decline that has happened stays, also if the order must close.
func (r *orderRun) settle(ctx context.Context, intent payments.Intent) (idempotency.RecordFunc, error) {
	closing := r.closeReason()
	var why Problem // of an intent that was declined or cancelled, or that lost its card
	switch {
	case intent.LastError != nil:
		why = Declined(*intent.LastError)
	case closing != nil:
		why = *closing
	case intent.Status == payments.StatusCanceled:
		why = Refused("payment_intent_canceled", "The payment was cancelled before the card was charged.")
	default:
		why = Refused("payment_method_missing", "The payment provider dropped the payment method.")
	}
	unconfirmed := intent.Status == payments.StatusRequiresConfirmation
	awaitsCustomer := intent.Status == payments.StatusRequiresAction
	switch {
	case intent.Status == payments.StatusSucceeded:
		return r.recordPayment, nil
	case intent.Status == payments.StatusCanceled:
		return r.recordFailure(why), nil
	case intent.Status == payments.StatusRequiresPaymentMethod:
		return r.cancel(ctx, why) // its customer may have the client secret, and pay with another card (R23, cancel first)
	case (unconfirmed || awaitsCustomer) && closing != nil:
		return r.cancel(ctx, *closing)
	case awaitsCustomer:
		return r.awaitAction(ctx, intent)
	case intent.Status == payments.StatusProcessing:
		return nil, r.retryLater(httpjson.ErrOutcomeUnknown, &payments.Error{Code: string(intent.Status), RetryAfter: processingRetryAfter})
	default:
		return nil, r.retryLater(httpjson.ErrOutcomeUnknown, &payments.Error{NeedsOperator: true, Code: string(intent.Status)})
	}
}

// recordPayment is transaction 3. It marks the order as paid, stages its receipt and its event, and
// stores the response (R15, staged receipt).
func (r *orderRun) recordPayment(ctx context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
	paidAt := r.run.Now()
	paid := r.order.Order
	paid.Status, paid.PaidAt = StatusPaid, &httpjson.Timestamp{Time: paidAt}
	r.updateTx(tx, "status = 'paid', paid_at = $3", paidAt)
	receipts.StageTx(tx, r.run.AccountID, paid.ID)
	r.service.Events.StageTx(tx, r.run.AccountID, events.ShopEvent{Type: events.OrderPaid, OrderID: paid.ID})
	r.auditTx(ctx, tx, "order.paid", map[string]any{
		"payment_intent_id": *paid.PaymentIntentID, "amount": paid.Amount, "currency": paid.Currency,
	})
	return httpjson.FinishCreated(r.run.Path+"/"+paid.ID.String(), paid)
}

// recordFailure returns transaction 3 of an order that can no longer be charged.
func (r *orderRun) recordFailure(why Problem) idempotency.RecordFunc {
	return func(ctx context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
		r.updateTx(tx, "status = 'payment_failed', failure_code = $3, decline_code = nullif($4, '')", why.Code, why.DeclineCode)
		r.service.Events.StageTx(tx, r.run.AccountID, events.ShopEvent{Type: events.OrderPaymentFailed, OrderID: r.order.ID})
		r.auditTx(ctx, tx, "order.payment_failed", map[string]any{"code": why.Code, "decline_code": why.DeclineCode})
		return why.Finish(r.order.ID)
	}
}

// closeReason returns why the order must close without another confirm, or nil if it stays open (R24,
// charge window; R29, durable cancel).
func (r *orderRun) closeReason() *Problem {
	switch {
	case r.order.CancelRequested:
		return new(Refused("canceled", "The order was cancelled before the card was charged."))
	case r.service.windowOver(r.order, r.run.LeaseEnd()):
		return new(Refused("charge_window_over", "The order was not charged in time, and it will not be charged any more."))
	default:
		return nil
	}
}

// windowOver reports whether the order's charge window ends before a lease does (R24, charge window).
// Both times are of the database's clock.
func (s *Service) windowOver(order orderRow, leaseEnd time.Time) bool {
	return leaseEnd.After(order.CreatedAt.Add(s.ChargeWindow))
}

func (r *orderRun) sendConfirm(ctx context.Context) (payments.Intent, *payments.Error) {
	ctx, cancel := payments.SendContext(ctx)
	defer cancel()
	key := payments.Key(r.run.KeyID, "-confirm", r.order.ConfirmKeyNumber)
	intent, err := r.service.Payments.Confirm(ctx, key, *r.order.PaymentIntentID, r.order.OffSession)
	return verify(r.order, intent, err)
}

func (s *Service) readIntent(ctx context.Context, order orderRow) (payments.Intent, *payments.Error) {
	intent, err := s.Payments.Get(ctx, *order.PaymentIntentID)
	return verify(order, intent, err)
}

// verify returns the error of a call, or an error if the intent is not that of the order.
func verify(order orderRow, intent payments.Intent, err error) (payments.Intent, *payments.Error) {
	failed := payments.Failure(err)
	ours := intent.Amount == order.Amount && intent.Currency == order.Currency && payments.ParseMetadata(intent.Metadata).OrderID == order.ID
	if failed == nil && !ours {
		failed = &payments.Error{NeedsOperator: true, Code: "not_our_payment"}
	}
	return intent, failed
}

// cancel fails the order only after the provider has cancelled its intent (R23, cancel first).
func (r *orderRun) cancel(ctx context.Context, why Problem) (idempotency.RecordFunc, error) {
	key := payments.Key(r.run.KeyID, "-cancel", r.order.ConfirmKeyNumber)
	intent, err := r.service.Payments.Cancel(ctx, key, *r.order.PaymentIntentID)
	failed := payments.Failure(err)
	switch {
	case failed == nil && intent.Status == payments.StatusCanceled:
		return r.recordFailure(why), nil
	case failed == nil:
		return nil, r.retryLater(httpjson.ErrOutcomeUnknown, &payments.Error{NeedsOperator: true, Code: string(intent.Status)})
	case failed.SavedUnderKey, failed.Outcome == payments.UnexpectedState:
		// The repeated step reads whether the intent was charged or cancelled.
		r.order.ConfirmKeyNumber++
		return r.repeatWithNextKey(pointChargeCreated, httpjson.ErrOutcomeUnknown, failed)
	default:
		return nil, r.retryLater(httpjson.ErrOutcomeUnknown, failed)
	}
}

// repeatWithNextKey repeats the step under the next provider key, because Stripe replays an error under
// the current one (R12, read first). A run does so once.
func (r *orderRun) repeatWithNextKey(point idempotency.RecoveryPoint, kind error, failed *payments.Error) (idempotency.RecordFunc, error) {
	if r.keyRotated {
		return nil, r.retryLater(kind, failed)
	}
	r.keyRotated = true
	return func(_ context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
		r.updateTx(tx, "create_key_number = $3, confirm_key_number = $4", r.order.CreateKeyNumber, r.order.ConfirmKeyNumber)
		return idempotency.Advance(point), nil
	}, nil
}

func (r *orderRun) retryLater(kind error, failed *payments.Error) error {
	return r.service.RetryLater(kind, failed, "order_id", r.order.ID, "key_id", r.run.KeyID)
}

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
	case r.order.OffSession:
		const code = "authentication_required" // Stripe's own decline of an off-session payment
		return r.cancel(ctx, Declined(payments.Decline{Code: code, DeclineCode: code}))
	case intent.Action == nil: // the card is not declined, so nothing is stored that says so
		return nil, r.retryLater(httpjson.ErrOutcomeUnknown, &payments.Error{NeedsOperator: true, Code: "action_unreadable"})
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
