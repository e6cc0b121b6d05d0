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

	// lostRowsReach is how much older than its order an intent may be, because a retry after lost rows
	// inserts the order again.
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

// findIntent returns the function that records the order's intent, or nil if the provider has none. It
// searches by metadata, and lists the recent intents, which the search may not find yet. The list ends
// with the charge window: any run until then may have created the intent, although a failover lost the
// run. With onlyOld, findIntent skips recent intents, because repeating the create returns those. After
// half of the step's time, it stops, and the repeated step continues.
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
	// Repeating the create may return another intent, which is charged but not found yet.
	unsure := onlyOld && found.Status == payments.StatusRequiresConfirmation && r.run.Now().Sub(found.Created) <= providerKeyTTL
	if found.ID == "" || unsure {
		return nil, nil
	}
	return r.recordIntent(found.ID), nil
}

// searchByMetadata also sets the range of the list that follows: the last hour, or, if the account has
// no search, the whole time in which the intent may have been created.
func (r *orderRun) searchByMetadata(ctx context.Context) *payments.Error {
	created, now := r.order.CreatedAt.Time, r.run.Now()
	since, until := now.Add(-searchDelay), now
	if end := created.Add(r.service.ChargeWindow); until.After(end) {
		until = end
	}
	if r.search.onlyOld {
		until = now.Add(-providerKeyTTL)
	}
	ids, err := r.calls.Payments.Search(ctx, provider.MetadataOrderID, r.order.ID.String())
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

// add keeps the order's intent with the highest precedence. confirmIntent compares the amount.
func (s *intentSearch) add(order orderRow, intent payments.Intent) {
	ours := provider.ParseMetadata(intent.Metadata).OrderID == order.ID
	if ours && (s.found.ID == "" || precedence(intent.Status) > precedence(s.found.Status)) {
		s.found = intent
	}
}

// precedence ranks the intents of an order: succeeded, in progress, failed (the client may already
// have the failure), unconfirmed.
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
