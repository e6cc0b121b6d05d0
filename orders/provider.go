package orders

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/operations"
	"example.com/orders-api/payments"
)

const (
	retryAfter       = 2 * time.Second
	misuseRetryAfter = time.Minute // an operator must act first
)

// stepContext bounds a step's provider calls, without monotonic time, which stops while a
// machine is suspended.
func (s *Service) stepContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, time.Now().Add(s.config.StepTimeout).Round(0))
}

// sendContext leaves two fifths of the step's remaining time for reading the result.
func sendContext(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, _ := ctx.Deadline()
	return context.WithDeadline(ctx, deadline.Add(-time.Until(deadline)*2/5))
}

func (r *orderRun) sendConfirm(ctx context.Context) (payments.Intent, *payments.Error) {
	ctx, cancel := sendContext(ctx)
	defer cancel()
	key := providerKey(r.KeyID, "-confirm", r.order.ConfirmAttempt)
	intent, err := r.config.Payments.Confirm(ctx, key, *r.order.PaymentIntentID, r.order.OffSession)
	return verify(r.order, intent, err)
}

func (s *Service) readIntent(ctx context.Context, order orderRow) (payments.Intent, *payments.Error) {
	intent, err := s.config.Payments.Get(ctx, *order.PaymentIntentID)
	return verify(order, intent, err)
}

// verify rejects an intent that was changed at the provider.
func verify(order orderRow, intent payments.Intent, err error) (payments.Intent, *payments.Error) {
	failed := asPaymentError(err)
	if failed == nil && !intent.Matches(order.Amount, order.Currency, order.ID.String()) {
		failed = &payments.Error{NeedsOperator: true, Code: "not_our_payment"}
	}
	return intent, failed
}

// providerKey is frozen (R5).
func providerKey(keyID uuid.UUID, step string, attempt int) string {
	key := "orders-api-" + keyID.String() + step
	if attempt > 1 {
		key += "-" + strconv.Itoa(attempt)
	}
	return key
}

// rotateKey repeats the step under the next provider key, because the current one replays an
// error (R12), once per run.
func (r *orderRun) rotateKey(attempt *int, at idempotency.RecoveryPoint, kind error, failed *payments.Error) (idempotency.RecordFunc, error) {
	if r.rotated {
		return nil, r.retryLater(kind, failed)
	}
	r.rotated = true
	*attempt++
	return func(_ context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
		updateOrderTx(tx, r.AccountID, r.order.ID, "create_attempt = $3, confirm_attempt = $4", r.order.CreateAttempt, r.order.ConfirmAttempt)
		return idempotency.Advance(at), nil
	}, nil
}

func (r *orderRun) retryLater(kind error, failed *payments.Error) error {
	return r.createOrder.retryLater(kind, failed, "order_id", r.order.ID, "key_id", r.KeyID)
}

// retryLater returns the error of a step without a final outcome (R11).
func (s *Service) retryLater(kind error, failed *payments.Error, attrs ...any) error {
	wait := retryAfter
	if failed.NeedsOperator {
		s.config.Logger.Error("the payment provider's response needs an operator", append(attrs, "error", failed)...)
		wait = misuseRetryAfter
	}
	return &operations.ProviderError{Kind: kind, RetryAfter: cmp.Or(failed.RetryAfter, wait), Cause: failed}
}

func asPaymentError(err error) *payments.Error {
	if err == nil {
		return nil
	}
	failed, ok := errors.AsType[*payments.Error](err)
	if !ok {
		failed = &payments.Error{NeedsOperator: true, Code: "unexpected_error"} // with Outcome Unknown, which is safe
	}
	return failed
}
