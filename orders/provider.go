package orders

import (
	"cmp"
	"errors"
	"strconv"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/payments"
)

// How long a client waits when the provider named no time.
const (
	retryAfter = 2 * time.Second

	// Only a person can help: asking more often only fills the log.
	misuseRetryAfter = time.Minute
)

// providerKey is the provider's idempotency key for one attempt of one step
// (R5). The first attempt has no number.
func providerKey(keyID uuid.UUID, step string, attempt int) string {
	key := "orders-api-" + keyID.String() + step
	if attempt > 1 {
		key += "-" + strconv.Itoa(attempt)
	}
	return key
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

// tryNextKey moves on from a key under which the provider keeps an answer that
// settles nothing, a 500 for instance: the key can only repeat it. It does so
// once in a run: a provider that fails again needs time, not another request
// (R12).
func (c *creation) tryNextKey(attempt *int, kind error, failed *payments.Error) error {
	if c.spentKeys == 1 {
		return c.noOutcome(kind, failed)
	}
	c.spentKeys++
	*attempt++
	c.nextKey = true
	return nil
}

// noOutcome is the error of a step that cannot be recorded yet.
func (c *creation) noOutcome(kind error, failed *payments.Error) error {
	return c.service.noOutcome(kind, failed, "order_id", c.order.ID, "key_id", c.run.KeyID)
}

// noOutcome tells operators when nobody but them can help. attrs say what it is
// about.
func (s *Service) noOutcome(kind error, failed *payments.Error, attrs ...any) error {
	wait := retryAfter
	if failed.Misuse {
		s.logger.Error("the payment provider's answer needs somebody to look at it", append(attrs, "error", failed)...)
		wait = misuseRetryAfter
	}
	return &ProviderError{Kind: kind, RetryAfter: cmp.Or(failed.RetryAfter, wait), Cause: failed}
}

// fail notes why the order is not charged and never will be.
func (c *creation) fail(why failure, cause *payments.Error) {
	c.failure = &why
	c.service.noteMisuse(cause, "order_id", c.order.ID, "key_id", c.run.KeyID)
}

// noteMisuse tells operators of a refusal that may be our own fault. cause may
// be nil.
func (s *Service) noteMisuse(cause *payments.Error, attrs ...any) {
	if cause != nil && cause.Misuse {
		s.logger.Error("the payment provider refused a request we should not have made", append(attrs, "error", cause)...)
	}
}
