package orders

import (
	"context"
	"errors"
	"time"

	"example.com/orders-api/payments"
)

// confirmShare is the part of a step's time that the confirm itself may use.
// The rest is for asking what became of it.
const confirmShare = 0.6

// processingRetryAfter is how long a client waits for a payment that the
// provider is still processing.
const processingRetryAfter = 30 * time.Second

// confirmIntent charges the card, unless the intent says that this happened
// already. This is the only call that moves money, and it does so at most once
// in the intent's life.
func (c *creation) confirmIntent(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.service.stepTimeout)
	defer cancel()
	if err := c.load(ctx); err != nil {
		return err
	}
	c.failure, c.nextKey = nil, false

	if c.unconfirmed {
		return c.confirm(ctx)
	}
	// An earlier run may have confirmed it: ask before acting (R12).
	intent, err := c.service.payments.Get(ctx, *c.order.PaymentIntentID)
	if failed := providerError(err); failed != nil {
		return c.noOutcome(ErrOutcomeUnknown, failed)
	}
	if intent.Status == payments.StatusRequiresConfirmation {
		return c.confirm(ctx)
	}
	return c.follow(ctx, intent)
}

// confirm sends the confirm and finds out what came of it.
func (c *creation) confirm(ctx context.Context) error {
	first := c.unconfirmed
	c.unconfirmed = false
	id := *c.order.PaymentIntentID

	sendCtx, cancel := context.WithTimeout(ctx, time.Duration(float64(c.service.stepTimeout)*confirmShare))
	defer cancel()
	intent, err := c.service.payments.Confirm(sendCtx, providerKey(c.run.KeyID, "-confirm", c.order.confirmAttempt), id)
	failed := providerError(err)
	switch {
	case failed == nil:
		return c.follow(ctx, intent)
	case failed.Outcome == payments.Declined && failed.Intent != nil && failed.Intent.Status == payments.StatusRequiresPaymentMethod:
		// The intent dropped the card: it can no longer succeed (R23).
		c.fail(declined(payments.Decline{Code: failed.Code, DeclineCode: failed.DeclineCode, Message: failed.Message}), nil)
		return nil
	case failed.Outcome == payments.NotRun && first:
		return c.noOutcome(ErrProviderUnavailable, failed)
	}

	// In doubt the intent itself tells (R12).
	intent, err = c.service.payments.Get(ctx, id)
	if unread := providerError(err); unread != nil {
		return c.noOutcome(ErrOutcomeUnknown, failed)
	}
	switch {
	case intent.Status != payments.StatusRequiresConfirmation:
		return c.follow(ctx, intent)
	case failed.Saved500:
		return c.tryNextKey(&c.order.confirmAttempt, ErrOutcomeUnknown, failed)
	case failed.Outcome == payments.Refused && !failed.UnexpectedState:
		return c.cancel(ctx, refused(failed), failed)
	default:
		return c.noOutcome(ErrOutcomeUnknown, failed) // it may yet arrive
	}
}

// follow does what the intent's status says (R12, R23).
func (c *creation) follow(ctx context.Context, intent payments.Intent) error {
	switch intent.Status {
	case payments.StatusSucceeded:
		if !intent.Matches(c.order.Amount, c.order.Currency, c.order.ID.String()) {
			return c.noOutcome(ErrOutcomeUnknown, &payments.Error{Misuse: true, Code: "not_our_payment", RequestID: intent.ID})
		}
		return nil
	case payments.StatusProcessing:
		return c.noOutcome(ErrOutcomeUnknown, &payments.Error{Code: "processing", RetryAfter: processingRetryAfter})
	case payments.StatusRequiresAction:
		return c.cancel(ctx, declined(payments.Decline{
			Code:        "authentication_required",
			DeclineCode: "authentication_required",
			Message:     "Your card was declined. This transaction requires authentication.",
		}), nil)
	case payments.StatusRequiresPaymentMethod:
		if intent.LastError != nil {
			c.fail(declined(*intent.LastError), nil)
			return nil
		}
		return c.cancel(ctx, failure{slug: SlugPaymentRefused, code: "payment_method_missing",
			detail: "The payment provider dropped the payment method."}, nil)
	case payments.StatusCanceled:
		c.fail(failure{slug: SlugPaymentRefused, code: "payment_intent_canceled",
			detail: "The payment was cancelled before the card was charged."}, nil)
		return nil
	default:
		return c.noOutcome(ErrOutcomeUnknown, &payments.Error{Misuse: true, Code: string(intent.Status)})
	}
}

// cancel makes sure that the intent can never be charged, and only then fails
// the order (R23). If the cancel came too late, the next run finds out.
func (c *creation) cancel(ctx context.Context, why failure, cause *payments.Error) error {
	intent, err := c.service.payments.Cancel(ctx,
		providerKey(c.run.KeyID, "-cancel", c.order.confirmAttempt), *c.order.PaymentIntentID)
	switch failed := providerError(err); {
	case failed == nil && intent.Status == payments.StatusCanceled:
		c.fail(why, cause)
		return nil
	case failed == nil:
		return c.noOutcome(ErrOutcomeUnknown, &payments.Error{Misuse: true, Code: string(intent.Status)})
	case failed.Saved500:
		return c.tryNextKey(&c.order.confirmAttempt, ErrOutcomeUnknown, failed)
	default:
		return c.noOutcome(ErrOutcomeUnknown, failed)
	}
}

// fail notes why the order is not charged and never will be. cause, when given,
// is an answer that may be our own fault, so operators hear of it.
func (c *creation) fail(why failure, cause *payments.Error) {
	c.failure = &why
	if cause != nil && cause.Misuse {
		c.service.logger.Error("the payment provider refused a request we should not have made",
			"order_id", c.order.ID, "key_id", c.run.KeyID, "error", cause)
	}
}

// providerError is err as the payments client returns it, nil for nil.
func providerError(err error) *payments.Error {
	if err == nil {
		return nil
	}
	var failed *payments.Error
	if !errors.As(err, &failed) {
		failed = &payments.Error{Misuse: true, Code: "unexpected_error"} // Outcome is Unknown, which is safe
	}
	return failed
}

func declined(d payments.Decline) failure {
	detail := d.Message
	if detail == "" {
		detail = "The card was declined."
	}
	return failure{slug: SlugPaymentDeclined, code: d.Code, declineCode: d.DeclineCode, detail: detail}
}

func refused(failed *payments.Error) failure {
	detail := failed.Message
	if detail == "" {
		detail = "The payment provider did not accept the request."
	}
	code := failed.Code
	if code == "" {
		code = "payment_refused"
	}
	return failure{slug: SlugPaymentRefused, code: code, detail: detail}
}
