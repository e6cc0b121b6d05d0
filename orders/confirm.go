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
		// required an action. So nobody can charge the intent any more.
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
