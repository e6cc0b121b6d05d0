package orders

import (
	"context"
	"time"

	"example.com/orders-api/payments"
)

// providerMemory is how long the provider certainly knows an idempotency key:
// Stripe says 24 hours at least; the rest is for the clocks (R12).
const providerMemory = 23 * time.Hour

// createIntent makes the PaymentIntent, unconfirmed. No money moves.
func (c *creation) createIntent(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.service.stepTimeout)
	defer cancel()
	if err := c.load(ctx); err != nil {
		return err
	}
	c.failure, c.nextKey = nil, false

	if c.closing || c.run.Now().Sub(c.order.CreatedAt) > providerMemory {
		// The provider may have forgotten the key and would make another intent.
		found, err := c.findIntent(ctx)
		if failed := providerError(err); failed != nil {
			return c.noOutcome(ErrProviderUnavailable, failed)
		}
		if found.ID != "" {
			c.order.PaymentIntentID = &found.ID
			return nil
		}
	}
	if c.closing {
		// One that arrives late stays unconfirmed: nobody will know its id (R23).
		c.fail(closed(), nil)
		return nil
	}
	intent, err := c.service.payments.Create(ctx, providerKey(c.run.KeyID, "", c.order.createAttempt), payments.CreateParams{
		Amount:        c.order.Amount,
		Currency:      c.order.Currency,
		PaymentMethod: c.order.paymentMethod,
		Description:   "Order " + c.order.ID.String(),
		// Events come back with it: see namedBy.
		Metadata: map[string]string{
			"account_id":         c.run.AccountID.String(),
			"order_id":           c.order.ID.String(),
			"idempotency_key_id": c.run.KeyID.String(),
		},
	})
	failed := providerError(err)
	switch {
	case failed == nil:
		c.order.PaymentIntentID = &intent.ID
		c.unconfirmed = !c.run.Resumed
		return nil
	// An intent that was not made, or that nobody knows the id of, can never be
	// charged (R23).
	case failed.Outcome == payments.Declined:
		c.fail(declinedBy(failed), failed)
		return nil
	case failed.Outcome == payments.Refused:
		c.fail(refusedBy(failed), failed)
		return nil
	case failed.Saved500:
		return c.tryNextKey(&c.order.createAttempt, ErrProviderUnavailable, failed)
	default:
		// Whatever became of it, an unconfirmed intent moves no money.
		return c.noOutcome(ErrProviderUnavailable, failed)
	}
}

// findIntent looks for the intent of an order that is older than the provider's
// memory of keys. One without an id says that there is none. A retry that made
// one may have been sent at any time until now, so the list is that long; where
// it is too long for one step, the order is left to an operator.
func (c *creation) findIntent(ctx context.Context) (payments.Intent, error) {
	var found payments.Intent
	since := c.order.CreatedAt.Add(-5 * time.Minute) // the provider's clock may be behind
	until := c.run.Now().Add(5 * time.Minute)        // or ahead
	err := c.service.payments.List(ctx, since, until, func(intent payments.Intent) bool {
		// Whatever its amount: confirmIntent looks at that, and raises the alarm.
		ours := intent.Metadata["order_id"] == c.order.ID.String()
		if ours && (found.ID == "" || weight(intent.Status) > weight(found.Status)) {
			found = intent
		}
		return found.Status != payments.StatusSucceeded
	})
	return found, err
}

// weight says how much hangs on an intent, when an order has several: money that
// moved comes first, then money that may be moving, then an end that a client
// may have been told of before this database was restored, and last what nobody
// has confirmed.
func weight(status payments.Status) int {
	switch status {
	case payments.StatusSucceeded:
		return 3
	case payments.StatusCanceled, payments.StatusRequiresPaymentMethod:
		return 1
	case payments.StatusRequiresConfirmation:
		return 0
	default:
		return 2
	}
}
