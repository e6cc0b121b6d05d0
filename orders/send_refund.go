package orders

import (
	"context"
	"time"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/operations"
	"example.com/orders-api/payments"
)

const (
	storedErrorTTL        = 24 * time.Hour   // how long the provider replays a 500, and may still make the refund
	storedErrorRetryAfter = time.Hour        // shorter, because an event may resolve the refund
	inFlightGrace         = 10 * time.Minute // how long a sent refund may take to arrive
)

func (r *refundRun) first() bool { return !r.Resumed && !r.sent }

func (r *refundRun) providerReplaysError() bool {
	return r.refund.ProviderFailedAt != nil && r.Now().Sub(*r.refund.ProviderFailedAt) < storedErrorTTL
}

func (r *refundRun) send(ctx context.Context) (idempotency.RecordFunc, error) {
	first := r.first()
	r.sent = true
	sending, cancel := sendContext(ctx)
	defer cancel()
	params := payments.RefundParams{
		IntentID: r.refund.IntentID,
		Amount:   r.refund.Amount,
		Currency: r.refund.Currency,
		Metadata: map[string]string{ // see VerifyEvent
			"account_id":         r.AccountID.String(),
			"order_id":           r.refund.OrderID.String(),
			"refund_id":          r.refund.ID.String(),
			"idempotency_key_id": r.KeyID.String(),
		},
	}
	if r.refund.Reason != nil {
		params.Reason = *r.refund.Reason
	}
	made, err := r.config.Payments.Refund(sending, providerKey(r.KeyID, "-refund", 1), params)
	failed := asPaymentError(err)
	switch {
	case failed == nil:
		return r.recordRefund(made)
	case failed.Outcome == payments.NotExecuted && first:
		return nil, r.retryLater(operations.ErrProviderUnavailable, failed)
	}

	// The list shows whether the refund was made, also by what caused a refusal (R12, R23).
	found, unread := r.findRefund(ctx)
	switch {
	case unread != nil:
		return nil, r.retryLater(operations.ErrOutcomeUnknown, unread)
	case found.ID != "":
		return r.recordRefund(found)
	case failed.ReplayedError && failed.Outcome != payments.NotExecuted: // the refund may still be made
		now := r.Now()
		r.refund.ProviderFailedAt = &now
		return func(_ context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
			setProviderFailedTx(tx, r.AccountID, r.refund.ID, now)
			return idempotency.Advance(pointRefundCreated), nil
		}, nil
	case failed.Outcome == payments.Refused, failed.Outcome == payments.Declined, failed.UnexpectedState:
		return r.recordFailure(refusedBy(failed)), nil
	default:
		return nil, r.retryLater(operations.ErrOutcomeUnknown, failed) // the refund may still arrive
	}
}

func (r *refundRun) findRefund(ctx context.Context) (payments.Refund, *payments.Error) {
	var found payments.Refund
	refunds, err := r.config.Payments.ListRefunds(ctx, r.refund.IntentID)
	for _, at := range refunds {
		// Of two refunds, one that is not void counts.
		if at.Metadata["refund_id"] == r.refund.ID.String() && (found.ID == "" || found.Status.Void()) {
			found = at
		}
	}
	return found, asPaymentError(err)
}

type resolution struct {
	attempt int  // detects a run that starts before the operator's
	idle    bool // nothing that the run sent is in flight any more
}

// resolve fails a refund that the provider does not have, unless it may be in flight (R23).
func (r *refundRun) resolve() (idempotency.RecordFunc, error) {
	if !r.resolution.idle || r.Attempt != r.resolution.attempt+1 {
		return nil, r.retryLater(operations.ErrOutcomeUnknown, &payments.Error{Code: "sent_moments_ago", RetryAfter: inFlightGrace})
	}
	return r.recordFailure(refused("closed_by_operator", "The refund was closed by the seller before it was made.")), nil
}

func (r *refundRun) retryLater(kind error, failed *payments.Error) error {
	return r.createRefund.retryLater(kind, failed, "order_id", r.refund.OrderID, "refund_id", r.refund.ID, "key_id", r.KeyID)
}
