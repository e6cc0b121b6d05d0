// Package provider has what the steps of orders and refunds share when they call the payment
// provider: deadlines, provider keys, and the errors and problems that follow from its answers.
package provider

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/payments"
)

// ClockSkew is how far the provider's clock may be from the database's.
const ClockSkew = time.Hour

const (
	retryAfter       = 2 * time.Second
	misuseRetryAfter = time.Minute // an operator must act first
)

// NotOurRefund is the code of the error of a run that refuses the provider's refund.
const NotOurRefund = "not_our_refund"

// Calls has what every step needs to call the provider.
type Calls struct {
	Payments *payments.Client
	Timeout  time.Duration // of a step's calls, retries included (R9, order of the durations)
	Logger   *slog.Logger
}

// Context bounds a step's calls. Its deadline has no monotonic time, because that stops while a machine
// is suspended.
func (c Calls) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, time.Now().Add(c.Timeout).Round(0))
}

// SendContext leaves two fifths of the step's remaining time for reading the result.
func SendContext(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, _ := ctx.Deadline()
	return context.WithDeadline(ctx, deadline.Add(-time.Until(deadline)*2/5))
}

// Key returns the provider key of a step's call. Its form never changes, because another key would
// be another payment (R5, derived ids). number counts the keys of the step from 1.
func Key(keyID uuid.UUID, step string, number int) string {
	key := "orders-api-" + keyID.String() + step
	if number > 1 {
		key += "-" + strconv.Itoa(number)
	}
	return key
}

// Failure returns the error of a call as a [*payments.Error], or nil.
func Failure(err error) *payments.Error {
	if err == nil {
		return nil
	}
	failed, ok := errors.AsType[*payments.Error](err)
	if !ok {
		failed = &payments.Error{NeedsOperator: true, Code: "unexpected_error"} // with Outcome Unknown, which is safe
	}
	return failed
}

// RetryLater returns the error of a step without a final outcome, so that no response is stored (R11,
// final only). attrs are for the log.
func (c Calls) RetryLater(kind error, failed *payments.Error, attrs ...any) error {
	wait := retryAfter
	if failed.NeedsOperator {
		c.Logger.Error("the payment provider's response needs an operator", append(attrs, "error", failed)...)
		wait = misuseRetryAfter
	}
	return &httpjson.ProviderError{Kind: kind, RetryAfter: cmp.Or(failed.RetryAfter, wait), Cause: failed}
}
