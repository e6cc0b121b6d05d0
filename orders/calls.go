package orders

import (
	"context"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/payments"
)

func (r *orderRun) sendCreate(ctx context.Context) (payments.Intent, *payments.Error) {
	intent, err := r.service.Payments.Create(ctx, payments.Key(r.run.KeyID, "", r.order.CreateKeyNumber), payments.CreateParams{
		Amount:        r.order.Amount,
		Currency:      r.order.Currency,
		PaymentMethod: r.order.PaymentMethod,
		Description:   "Order " + r.order.ID.String(),
		Metadata:      payments.Metadata{AccountID: r.run.AccountID, OrderID: r.order.ID, KeyID: r.run.KeyID}.Encode(),
	})
	return intent, payments.Failure(err)
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
