package orders

import (
	"context"
	"time"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
)

// What happens if the outcome of a refund is unknown.

const (
	// storedErrorTTL is how long the provider repeats a 500 under our key, and how
	// long it may take to make the refund in spite of it: Stripe keeps keys for a day.
	storedErrorTTL = 24 * time.Hour

	// storedErrorRetryAfter is how long a client waits meanwhile. A webhook may
	// resolve the refund sooner, so a day would be too long.
	storedErrorRetryAfter = time.Hour

	// inFlightGrace is how long a refund that was sent may take to arrive. A run ends
	// with its lease, within minutes; the rest is for delays of the network.
	inFlightGrace = 10 * time.Minute
)

// first reports whether no run has sent the refund before.
func (r *refundRun) first() bool { return !r.Resumed && !r.sent }

// providerReplaysError reports whether the provider still repeats a 500 under our
// key.
func (r *refundRun) providerReplaysError() bool {
	return r.refund.providerFailedAt != nil && r.Now().Sub(*r.refund.providerFailedAt) < storedErrorTTL
}

// send sends the refund and resolves its outcome.
func (r *refundRun) send(ctx context.Context) (idempotency.Record, error) {
	first := r.first()
	r.sent = true
	sending, cancel := sendContext(ctx)
	defer cancel()
	params := payments.RefundParams{
		IntentID: r.refund.intentID,
		Amount:   r.refund.Amount,
		Currency: r.refund.Currency,
		Metadata: map[string]string{ // events contain it, see keyFromMetadata
			"account_id":         r.AccountID.String(),
			"order_id":           r.refund.OrderID.String(),
			"refund_id":          r.refund.ID.String(),
			"idempotency_key_id": r.KeyID.String(),
		},
	}
	if r.refund.Reason != nil {
		params.Reason = *r.refund.Reason
	}
	made, err := r.payments.Refund(sending, providerKey(r.KeyID, "-refund", 1), params)
	failed := asPaymentError(err)
	switch {
	case failed == nil:
		return r.applyRefund(made)
	case failed.Outcome == payments.NotExecuted && first:
		return nil, r.retryLater(ErrProviderUnavailable, failed)
	}

	// The list resolves the doubt, and is read before a refusal is believed: our own
	// refund may be the reason for it (R12, R23).
	found, unread := r.findRefund(ctx)
	switch {
	case unread != nil:
		return nil, r.retryLater(ErrOutcomeUnknown, unread)
	case found.ID != "":
		return r.applyRefund(found)
	case failed.ReplayedError && failed.Outcome != payments.NotExecuted: // a 500, which may be followed by the refund
		now := r.Now()
		r.refund.providerFailedAt = &now
		return func(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
			setProviderFailedTx(tx, r.AccountID, r.refund.ID, now)
			return idempotency.Advance(pointRefundCreated), nil
		}, nil
	case failed.Outcome == payments.Refused, failed.Outcome == payments.Declined, failed.UnexpectedState:
		return r.recordFailure(refusedBy(failed), payments.Refund{}), nil
	default:
		return nil, r.retryLater(ErrOutcomeUnknown, failed) // the refund may still arrive
	}
}

// findRefund searches the intent's refunds at the provider for this one. A refund
// without an id means that there is none.
func (r *refundRun) findRefund(ctx context.Context) (payments.Refund, *payments.Error) {
	var found payments.Refund
	err := r.payments.ListRefunds(ctx, r.refund.intentID, func(at payments.Refund) bool {
		// Whatever its amount is: applyRefund verifies it. Of two, which reconcile
		// reports, the one that holds money counts.
		if at.Metadata["refund_id"] == r.refund.ID.String() && (found.ID == "" || RefundStatus(found.Status).Void()) {
			found = at
		}
		return true
	})
	return found, asPaymentError(err)
}

// applyRefund does what the status of the provider's refund requires.
func (r *refundRun) applyRefund(made payments.Refund) (idempotency.Record, error) {
	switch {
	case !r.refund.matches(made):
		return nil, r.retryLater(ErrOutcomeUnknown, &payments.Error{NeedsOperator: true, Code: "not_our_refund"})
	case RefundStatus(made.Status).Void():
		return r.recordFailure(refundFailed(made), made), nil
	default:
		return r.recordRefund(made), nil
	}
}

// resolution is what an operator's resolve knows of the key's last run.
type resolution struct {
	attempt int
	idle    bool // it began long enough ago that nothing it sent is in flight
}

// resolve fails the refund, which the provider does not have. A refund that was
// sent a moment ago may still arrive there; then it is too early (R23).
func (r *refundRun) resolve() (idempotency.Record, error) {
	if !r.resolution.idle || r.Attempt != r.resolution.attempt+1 {
		return nil, r.retryLater(ErrOutcomeUnknown, &payments.Error{Code: "sent_moments_ago", RetryAfter: inFlightGrace})
	}
	return r.recordFailure(closedRefund(), payments.Refund{}), nil
}

func (r *refundRun) retryLater(kind error, failed *payments.Error) error {
	return r.createRefund.retryLater(kind, failed, r.attrs()...)
}

func (r *refundRun) attrs() []any {
	return []any{"order_id", r.refund.OrderID, "refund_id", r.refund.ID, "key_id", r.KeyID}
}
