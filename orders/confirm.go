package orders

import (
	"context"
	"time"

	"example.com/orders-api/payments"
)

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
		c.unconfirmed = false
		return c.confirm(ctx, true)
	}
	// An earlier run may have confirmed it: ask before acting (R12).
	intent, failed := c.readIntent(ctx)
	switch {
	case failed != nil:
		return c.noOutcome(ErrOutcomeUnknown, failed)
	case intent.Status == payments.StatusRequiresConfirmation && c.closing:
		return c.cancel(ctx, closed(), nil)
	case intent.Status == payments.StatusRequiresConfirmation:
		return c.confirm(ctx, false)
	default:
		return c.follow(ctx, intent)
	}
}

// confirm sends the confirm and finds out what came of it. first says that no
// confirm was sent before.
func (c *creation) confirm(ctx context.Context, first bool) error {
	intent, failed := c.sendConfirm(ctx)
	switch {
	case failed == nil:
		return c.follow(ctx, intent)
	case failed.Outcome == payments.Declined && failed.Intent != nil && failed.Intent.Status == payments.StatusRequiresPaymentMethod:
		// The intent dropped the card: it can no longer succeed (R23).
		c.fail(declinedBy(failed), failed)
		return nil
	case failed.Outcome == payments.NotRun && first:
		return c.noOutcome(ErrProviderUnavailable, failed)
	}

	// In doubt the intent itself tells (R12).
	intent, unread := c.readIntent(ctx)
	switch {
	case unread != nil:
		return c.noOutcome(ErrOutcomeUnknown, unread)
	case intent.Status != payments.StatusRequiresConfirmation:
		return c.follow(ctx, intent)
	case failed.Saved500, failed.UnexpectedState:
		return c.tryNextKey(&c.order.confirmAttempt, ErrOutcomeUnknown, failed)
	case failed.Outcome == payments.Declined:
		return c.cancel(ctx, declinedBy(failed), failed)
	case failed.Outcome == payments.Refused:
		return c.cancel(ctx, refusedBy(failed), failed)
	default:
		return c.noOutcome(ErrOutcomeUnknown, failed) // it may yet arrive
	}
}

// sendConfirm sends the confirm. It may use three fifths of the time that is
// left; the rest is for asking what became of it.
func (c *creation) sendConfirm(ctx context.Context) (payments.Intent, *payments.Error) {
	deadline, _ := ctx.Deadline() // of the step, so there is one
	ctx, cancel := context.WithTimeout(ctx, time.Until(deadline)*3/5)
	defer cancel()
	key := providerKey(c.run.KeyID, "-confirm", c.order.confirmAttempt)
	return c.ours(c.service.payments.Confirm(ctx, key, *c.order.PaymentIntentID))
}

// readIntent asks the provider for the intent as it is now.
func (c *creation) readIntent(ctx context.Context) (payments.Intent, *payments.Error) {
	return c.ours(c.service.payments.Get(ctx, *c.order.PaymentIntentID))
}

// ours makes an error of an intent that is not about this order's money, for
// instance because somebody changed it at the provider: it is never confirmed,
// never believed, and left to an operator.
func (c *creation) ours(intent payments.Intent, err error) (payments.Intent, *payments.Error) {
	failed := providerError(err)
	if failed == nil && !intent.Matches(c.order.Amount, c.order.Currency, c.order.ID.String()) {
		failed = &payments.Error{Misuse: true, Code: "not_our_payment"} // Outcome is Unknown
	}
	return intent, failed
}

// follow does what the intent's status says (R12, R23).
func (c *creation) follow(ctx context.Context, intent payments.Intent) error {
	switch intent.Status {
	case payments.StatusSucceeded:
		return nil
	case payments.StatusProcessing:
		return c.noOutcome(ErrOutcomeUnknown, &payments.Error{Code: string(intent.Status), RetryAfter: processingRetryAfter})
	case payments.StatusRequiresAction:
		return c.cancel(ctx, authenticationRequired(), nil)
	case payments.StatusRequiresPaymentMethod, payments.StatusCanceled:
		switch {
		case intent.LastError != nil:
			c.fail(declined(*intent.LastError), nil)
			return nil
		case intent.Status == payments.StatusCanceled:
			c.fail(canceled(), nil)
			return nil
		default:
			return c.cancel(ctx, paymentMethodMissing(), nil)
		}
	default:
		return c.noOutcome(ErrOutcomeUnknown, &payments.Error{Misuse: true, Code: string(intent.Status)})
	}
}

// cancel makes sure that the intent can never be charged, and only then fails
// the order (R23).
func (c *creation) cancel(ctx context.Context, why failure, cause *payments.Error) error {
	key := providerKey(c.run.KeyID, "-cancel", c.order.confirmAttempt)
	intent, err := c.service.payments.Cancel(ctx, key, *c.order.PaymentIntentID)
	failed := providerError(err)
	switch {
	case failed == nil && intent.Status == payments.StatusCanceled:
		c.fail(why, cause)
		return nil
	case failed == nil:
		return c.noOutcome(ErrOutcomeUnknown, &payments.Error{Misuse: true, Code: string(intent.Status)})
	case failed.Saved500, failed.UnexpectedState:
		// It came too late, or its own answer is lost: confirmIntent asks again.
		return c.tryNextKey(&c.order.confirmAttempt, ErrOutcomeUnknown, failed)
	default:
		return c.noOutcome(ErrOutcomeUnknown, failed)
	}
}
