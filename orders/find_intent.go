package orders

import (
	"context"
	"time"

	"example.com/orders-api/operations"
	"example.com/orders-api/orders/provider"
	"example.com/orders-api/payments"
)

const (
	// providerKeyTTL is how long Stripe remembers a key.
	providerKeyTTL = 24 * time.Hour

	// lostRowsReach is how much older than its order an intent may be, because a retry after lost rows
	// inserts the order again.
	lostRowsReach = 24 * time.Hour

	// searchDelay is the age from which the provider's search finds an intent.
	searchDelay = time.Hour
)

type intentSearch struct {
	createRepeatable bool            // see findIntent
	found            payments.Intent // the one with the highest precedence so far

	// The range of the list and its cursor, once the search by metadata is done.
	since, until time.Time
	after        string
}

// findIntent returns the intent of an earlier run, or a zero one if the create is to be sent. It
// searches by metadata, and lists the recent intents, which the search may not find yet. The list ends
// with the charge window: any run until then may have created the intent, although a failover lost the
// run. If the create is repeatable, the provider still has its key, so the list omits the intents
// that a repeated create would return. After half of the step's time, the search is incomplete, and
// the repeated step continues it.
func (r *orderRun) findIntent(ctx context.Context, createRepeatable bool) (_ payments.Intent, complete bool, err error) {
	if r.search.since.IsZero() || r.search.createRepeatable != createRepeatable { // the provider key may expire during a search
		r.search = intentSearch{createRepeatable: createRepeatable}
		if failed := r.searchByMetadata(ctx); failed != nil {
			return payments.Intent{}, false, r.retryLater(operations.ErrProviderUnavailable, failed)
		}
	}
	deadline, _ := ctx.Deadline()
	more := r.search.since.Before(r.search.until)
	for more && r.search.found.Status != payments.StatusSucceeded {
		page, next, err := r.service.Calls.Payments.List(ctx, r.search.since, r.search.until, r.search.after)
		if err != nil {
			return payments.Intent{}, false, r.retryLater(operations.ErrProviderUnavailable, provider.Failure(err))
		}
		for _, intent := range page {
			r.search.add(r.order, intent)
		}
		r.search.after, more = next, next != ""
		if more && time.Until(deadline) < r.service.Calls.Timeout/2 {
			return payments.Intent{}, false, nil
		}
	}
	found := r.search.found
	r.search = intentSearch{} // a repeated step searches again
	if !createRepeatable || found.ID == "" || found.Status == payments.StatusSucceeded {
		return found, true, nil
	}
	// Another intent may be charged, but not found yet, because the list was short.
	switch recent := r.keyRemembered(found.Created); {
	case !recent: // the other one may be of a later create, whose key was forgotten as well
		r.createUnrepeatable = true
		return r.findIntent(ctx, false)
	case found.Status == payments.StatusRequiresConfirmation: // the repeated create returns the other one
		return payments.Intent{}, true, nil
	default:
		return found, true, nil
	}
}

// keyRemembered reports whether the provider still has the key of a create at this time.
func (r *orderRun) keyRemembered(created time.Time) bool {
	return r.run.Now().Sub(created) <= providerKeyTTL-provider.ClockSkew
}

// searchByMetadata also sets the range of the list that follows: the last hour, or, if the account has
// no search, the whole time in which the intent may have been created.
func (r *orderRun) searchByMetadata(ctx context.Context) *payments.Error {
	created, now := r.order.CreatedAt.Time, r.run.Now()
	since, until := now.Add(-searchDelay), now
	if end := created.Add(r.service.ChargeWindow); until.After(end) {
		until = end
	}
	if r.search.createRepeatable {
		until = now.Add(-providerKeyTTL)
	}
	ids, err := r.service.Calls.Payments.Search(ctx, provider.MetadataOrderID, r.order.ID.String())
	switch failed := provider.Failure(err); {
	case failed != nil && failed.NotOffered:
		since = created.Add(-lostRowsReach)
	case failed != nil:
		return failed
	}
	for _, id := range ids {
		intent, err := r.service.Calls.Payments.Get(ctx, id) // the search may return an old status
		if err != nil {
			return provider.Failure(err)
		}
		r.search.add(r.order, intent)
	}
	r.search.since, r.search.until = since.Add(-provider.ClockSkew), until.Add(provider.ClockSkew)
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
