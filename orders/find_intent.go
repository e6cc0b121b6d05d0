package orders

import (
	"context"
	"time"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
)

// clockSkew is how far the provider's clock may be from the database's.
const clockSkew = 5 * time.Minute

// intentSearch is the state of a search that takes several steps of one run.
type intentSearch struct {
	found payments.Intent // the one with the highest precedence so far
	after string          // cursor: the last intent that was read
}

// findIntent searches the provider's list for the order's intent and returns its record, or
// nil if there is none. After half of the step's time, the record only commits, which renews
// the lease (R8), and the next step continues. The range ends with the charge window, not
// with the last recorded run, because a failover may have lost later runs.
func (r *orderRun) findIntent(ctx context.Context) (idempotency.Record, error) {
	since, until := r.order.CreatedAt.Time, r.Now()
	if end := since.Add(r.ChargeWindow); until.After(end) {
		until = end
	}
	deadline, _ := ctx.Deadline()
	for {
		page, next, err := r.Payments.List(ctx, since.Add(-clockSkew), until.Add(clockSkew), r.search.after)
		if err != nil {
			return nil, r.retryLater(ErrProviderUnavailable, asPaymentError(err))
		}
		for _, intent := range page {
			// The amount is not compared here: confirmIntent verifies it.
			ours := intent.Metadata["order_id"] == r.order.ID.String()
			if ours && (r.search.found.ID == "" || precedence(intent.Status) > precedence(r.search.found.Status)) {
				r.search.found = intent
			}
		}
		found := r.search.found
		if next == "" || found.Status == payments.StatusSucceeded {
			r.search = intentSearch{} // a repeated step searches again
			if found.ID == "" {
				return nil, nil
			}
			return r.recordIntent(found.ID), nil
		}
		r.search.after = next
		if time.Until(deadline) < r.StepTimeout/2 {
			return func(context.Context, *idempotency.Tx) (idempotency.Outcome, error) {
				return idempotency.Advance(pointOrderCreated), nil
			}, nil
		}
	}
}

// precedence ranks several intents of one order, which a restored database can cause:
// succeeded, in progress, failed (a client may have received that response), unconfirmed.
func precedence(status payments.Status) int {
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
