package orders

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
)

// How the outcome of a confirm is resolved: by reading the intent and following its
// status. A failure is stored only after the intent can no longer be charged.

const (
	// providerKeyTTL is how long a provider key certainly works. Stripe states at least
	// 24 hours; the difference is for clock skew (R12).
	providerKeyTTL = 23 * time.Hour

	// Retry-After, unless the provider's response has one.
	retryAfter           = 2 * time.Second
	misuseRetryAfter     = time.Minute // an operator must act first
	processingRetryAfter = 30 * time.Second
)

// confirm sends the confirm and resolves its outcome. first means that no confirm was sent
// before.
func (r *orderRun) confirm(ctx context.Context, first bool) (idempotency.Record, error) {
	intent, failed := r.sendConfirm(ctx)
	switch {
	case failed == nil:
		return r.applyStatus(ctx, intent)
	case failed.Outcome == payments.Declined && failed.Intent != nil && failed.Intent.Status == payments.StatusRequiresPaymentMethod:
		// The intent has no card any more, so it cannot be charged (R23).
		return r.recordFailure(declinedBy(failed)), nil
	case failed.Outcome == payments.NotExecuted && first:
		return nil, r.retryLater(ErrProviderUnavailable, failed)
	}

	// The outcome is unknown, or must be verified: read the intent (R12).
	intent, unread := r.readIntent(ctx, r.order)
	switch {
	case unread != nil:
		return nil, r.retryLater(ErrOutcomeUnknown, unread)
	case intent.Status != payments.StatusRequiresConfirmation:
		return r.applyStatus(ctx, intent)
	case failed.ReplayedError, failed.UnexpectedState:
		return r.rotateKey(&r.order.confirmAttempt, pointChargeCreated, ErrOutcomeUnknown, failed)
	case failed.Outcome == payments.Declined:
		return r.cancel(ctx, declinedBy(failed))
	case failed.Outcome == payments.Refused:
		return r.cancel(ctx, refusedBy(failed))
	default:
		return nil, r.retryLater(ErrOutcomeUnknown, failed) // the confirm may still arrive
	}
}

func (r *orderRun) sendConfirm(ctx context.Context) (payments.Intent, *payments.Error) {
	ctx, cancel := sendContext(ctx)
	defer cancel()
	key := providerKey(r.KeyID, "-confirm", r.order.confirmAttempt)
	intent, err := r.Payments.Confirm(ctx, key, *r.order.PaymentIntentID, r.order.OffSession)
	return verify(r.order, intent, err)
}

func (s *Service) readIntent(ctx context.Context, order orderRow) (payments.Intent, *payments.Error) {
	intent, err := s.Payments.Get(ctx, *order.PaymentIntentID)
	return verify(order, intent, err)
}

// verify rejects an intent with another amount, currency or order. Such an intent was
// changed at the provider and needs an operator.
func verify(order orderRow, intent payments.Intent, err error) (payments.Intent, *payments.Error) {
	failed := asPaymentError(err)
	if failed == nil && !intent.Matches(order.Amount, order.Currency, order.ID.String()) {
		failed = &payments.Error{NeedsOperator: true, Code: "not_our_payment"}
	}
	return intent, failed
}

// applyStatus does what the intent's status requires (R12, R23).
func (r *orderRun) applyStatus(ctx context.Context, intent payments.Intent) (idempotency.Record, error) {
	switch intent.Status {
	case payments.StatusSucceeded:
		return r.recordPayment, nil
	case payments.StatusProcessing:
		return nil, r.retryLater(ErrOutcomeUnknown, &payments.Error{Code: string(intent.Status), RetryAfter: processingRetryAfter})
	case payments.StatusRequiresAction:
		return r.awaitAction(ctx, intent)
	case payments.StatusRequiresPaymentMethod, payments.StatusCanceled:
		switch {
		case intent.LastError != nil && intent.Status == payments.StatusRequiresPaymentMethod && !r.order.OffSession:
			// The customer may have the client secret, and could pay with another card (R23).
			return r.cancel(ctx, declined(*intent.LastError))
		case intent.LastError != nil:
			return r.recordFailure(declined(*intent.LastError)), nil
		case intent.Status == payments.StatusCanceled:
			return r.recordFailure(refused("payment_intent_canceled", "The payment was cancelled before the card was charged.")), nil
		default:
			return r.cancel(ctx, refused("payment_method_missing", "The payment provider dropped the payment method."))
		}
	default:
		return nil, r.retryLater(ErrOutcomeUnknown, &payments.Error{NeedsOperator: true, Code: string(intent.Status)})
	}
}

// cancel cancels the intent, and only then fails the order (R23).
func (r *orderRun) cancel(ctx context.Context, why failure) (idempotency.Record, error) {
	key := providerKey(r.KeyID, "-cancel", r.order.confirmAttempt)
	intent, err := r.Payments.Cancel(ctx, key, *r.order.PaymentIntentID)
	failed := asPaymentError(err)
	switch {
	case failed == nil && intent.Status == payments.StatusCanceled:
		return r.recordFailure(why), nil
	case failed == nil:
		return nil, r.retryLater(ErrOutcomeUnknown, &payments.Error{NeedsOperator: true, Code: string(intent.Status)})
	case failed.ReplayedError, failed.UnexpectedState:
		// The intent may be charged or cancelled: the repeated step reads it.
		return r.rotateKey(&r.order.confirmAttempt, pointChargeCreated, ErrOutcomeUnknown, failed)
	default:
		return nil, r.retryLater(ErrOutcomeUnknown, failed)
	}
}

// rotateKey repeats the step under the next provider key, because the provider replays an
// error under the current one (R12). Once per run: a provider that fails again needs time.
func (r *orderRun) rotateKey(attempt *int, at idempotency.RecoveryPoint, kind error, failed *payments.Error) (idempotency.Record, error) {
	if r.rotated {
		return nil, r.retryLater(kind, failed)
	}
	r.rotated = true
	*attempt++
	return func(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
		updateOrderTx(tx, r.AccountID, r.order.ID, "create_attempt = $3, confirm_attempt = $4", r.order.createAttempt, r.order.confirmAttempt)
		return idempotency.Advance(at), nil
	}, nil
}

func (r *orderRun) retryLater(kind error, failed *payments.Error) error {
	return r.createOrder.retryLater(kind, failed, "order_id", r.order.ID, "key_id", r.KeyID)
}

// retryLater returns the error of a step without a final outcome (R11). It logs an error
// that needs an operator, with attrs.
func (s *Service) retryLater(kind error, failed *payments.Error, attrs ...any) error {
	wait := retryAfter
	if failed.NeedsOperator {
		s.Logger.Error("the payment provider's response needs an operator", append(attrs, "error", failed)...)
		wait = misuseRetryAfter
	}
	return &ProviderError{Kind: kind, RetryAfter: cmp.Or(failed.RetryAfter, wait), Cause: failed}
}

// providerKey is the provider's idempotency key for one attempt of a call (R5).
func providerKey(keyID uuid.UUID, step string, attempt int) string {
	key := "orders-api-" + keyID.String() + step
	if attempt > 1 {
		key += "-" + strconv.Itoa(attempt)
	}
	return key
}

// asPaymentError converts an error of the payments client. It returns nil for nil.
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
