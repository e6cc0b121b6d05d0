package orders

import (
	"context"
	"time"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
)

// clockSkew is how far the provider's clock may be from the database's.
const clockSkew = 5 * time.Minute

// intentSearch is a search of the provider's list that may take several steps of a run.
// It is kept in memory: if the run dies, the next one starts again.
type intentSearch struct {
	found payments.Intent // the best so far, see precedence
	after string          // the id of the last intent that was read; "" at the beginning
}

// findIntent searches the provider's list for the intent of an order whose provider key
// may have expired. An intent without an id means that there is none. If the list is
// longer than half of the step's time, ended is false: the run commits, which renews its
// lease (R8), and the next step continues.
//
// No run creates an intent after the charge window. The end of the range does not
// depend on the last run that is recorded here, because a failover may have lost later
// ones, and they may have charged the order.
func (r *orderRun) findIntent(ctx context.Context) (found payments.Intent, ended bool, failed *payments.Error) {
	since, until := r.order.CreatedAt.Time, r.Now()
	if end := since.Add(r.chargeWindow); until.After(end) {
		until = end
	}
	deadline, _ := ctx.Deadline()
	for {
		page, more, err := r.payments.ListPage(ctx, since.Add(-clockSkew), until.Add(clockSkew), r.search.after)
		if err != nil {
			return payments.Intent{}, false, asPaymentError(err)
		}
		for _, intent := range page {
			// Whatever its amount is: confirmIntent verifies it.
			ours := intent.Metadata["order_id"] == r.order.ID.String()
			if ours && (r.search.found.ID == "" || precedence(intent.Status) > precedence(r.search.found.Status)) {
				r.search.found = intent
			}
		}
		found = r.search.found
		if !more || found.Status == payments.StatusSucceeded {
			r.search = intentSearch{} // another search starts again
			return found, true, nil
		}
		r.search.after = page[len(page)-1].ID
		if time.Until(deadline) < r.stepTimeout/2 {
			return payments.Intent{}, false, nil
		}
	}
}

// continueSearch is the record of a step that has read a part of the list.
func (*orderRun) continueSearch(context.Context, *idempotency.Tx) (idempotency.Outcome, error) {
	return idempotency.Advance(pointOrderCreated), nil
}

// precedence chooses between several intents of one order: succeeded, then in
// progress, then terminal (a client may have received that result before this
// database was restored), then unconfirmed.
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
