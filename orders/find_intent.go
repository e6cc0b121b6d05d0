package orders

import (
	"context"
	"time"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/operations"
	"example.com/orders-api/orders/provider"
	"example.com/orders-api/payments"
)

const (
	// clockSkew is how far the provider's clock may be from the database's.
	clockSkew = 5 * time.Minute

	// lostRowsReach: after lost rows, a retry inserts the order again, so its intent may be this much
	// older.
	lostRowsReach = 24 * time.Hour

	// searchDelay is the age from which the provider's search finds an intent.
	searchDelay = time.Hour
)

type intentSearch struct {
	onlyOld bool            // see findIntent
	found   payments.Intent // the one with the highest precedence so far

	// The range of the list and its cursor, once the search by metadata is done.
	since, until time.Time
	after        string
}

// findIntent returns the record of the order's intent, or nil if the provider has none. It searches by
// metadata, and lists the intents that the search may not find. The list ends with the charge window,
// because a failover may have lost later runs. onlyOld skips recent intents, because repeating the
// create returns those. After half of the step's time, the next step continues.
func (r *orderRun) findIntent(ctx context.Context, onlyOld bool) (idempotency.RecordFunc, error) {
	if r.search.since.IsZero() || r.search.onlyOld != onlyOld { // the provider key may expire during a search
		r.search = intentSearch{onlyOld: onlyOld}
		if failed := r.searchByMetadata(ctx); failed != nil {
			return nil, r.retryLater(operations.ErrProviderUnavailable, failed)
		}
	}
	deadline, _ := ctx.Deadline()
	more := r.search.since.Before(r.search.until)
	for more && r.search.found.Status != payments.StatusSucceeded {
		page, next, err := r.calls.Payments.List(ctx, r.search.since, r.search.until, r.search.after)
		if err != nil {
			return nil, r.retryLater(operations.ErrProviderUnavailable, provider.Failure(err))
		}
		for _, intent := range page {
			r.search.add(r.order, intent)
		}
		r.search.after, more = next, next != ""
		if more && time.Until(deadline) < r.calls.Timeout/2 {
			return repeatCreate, nil
		}
	}
	found := r.search.found
	r.search = intentSearch{} // a repeated step searches again
	// The create may return a charged intent that is not found yet.
	unsure := onlyOld && found.Status == payments.StatusRequiresConfirmation && r.run.Now().Sub(found.Created) <= providerKeyTTL
	if found.ID == "" || unsure {
		return nil, nil
	}
	return r.recordIntent(found.ID), nil
}

// searchByMetadata also sets the range of the list: the latest intents, which the search does not find
// yet, or all that may be ours if the account has no search.
func (r *orderRun) searchByMetadata(ctx context.Context) *payments.Error {
	created, now := r.order.CreatedAt.Time, r.run.Now()
	since, until := now.Add(-searchDelay), now
	if end := created.Add(r.service.ChargeWindow); until.After(end) {
		until = end
	}
	if r.search.onlyOld {
		until = now.Add(-providerKeyTTL)
	}
	ids, err := r.calls.Payments.Search(ctx, r.order.ID)
	switch failed := provider.Failure(err); {
	case failed != nil && failed.NotOffered:
		since = created.Add(-lostRowsReach)
	case failed != nil:
		return failed
	}
	for _, id := range ids {
		intent, err := r.calls.Payments.Get(ctx, id) // the search may return an old status
		if err != nil {
			return provider.Failure(err)
		}
		r.search.add(r.order, intent)
	}
	r.search.since, r.search.until = since.Add(-clockSkew), until.Add(clockSkew)
	return nil
}

// add does not compare the amount, because confirmIntent does.
func (s *intentSearch) add(order orderRow, intent payments.Intent) {
	ours := intent.Metadata["order_id"] == order.ID.String()
	if ours && (s.found.ID == "" || precedence(intent.Status) > precedence(s.found.Status)) {
		s.found = intent
	}
}

// precedence ranks the intents of an order: succeeded, in progress, failed (the client may have been
// told), unconfirmed.
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
