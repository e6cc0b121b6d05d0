package orders

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/payments"
)

const (
	// clockSkew is how far the provider's clock may be from the database's. Where
	// it is further, a comparison takes longer and is as right.
	clockSkew = 5 * time.Minute

	// intentBatch is how many intents are looked up at once, a page of the
	// provider's list.
	intentBatch = 100

	// stuckLimit bounds how many stuck keys a report holds. A shop with more has
	// no completer, and the report says that as well as a longer one would.
	stuckLimit = 10_000
)

// ReconcileConfig says what [Service.Reconcile] compares.
type ReconcileConfig struct {
	Since time.Duration // how far back to look; more than Grace
	Grace time.Duration // how long to leave what is under way alone (R9: COMPLETER_GRACE)

	// Fix resumes stuck keys, cancels intents left behind and lets the books follow
	// refunds whose status moved. Without it nothing is changed anywhere.
	Fix bool

	// Progress, when not nil, is told how far back the provider's list has come,
	// from 0 to 1. It is the part that takes long.
	Progress func(fraction float64)
}

// Reconcile compares the books with the provider's lists of payments and of
// refunds, in both directions, and
// reports where they differ. An error means that the comparison is incomplete,
// and that nothing was fixed.
//
// It raises no false alarm while orders are being made. An order is committed
// before its intent is created, a charge succeeds before it is booked, and here
// each intent is read before its order: so whatever no run has touched for Grace,
// counted from the beginning, was at rest in both readings. The rest is left for
// the next time.
func (s *Service) Reconcile(ctx context.Context, config ReconcileConfig) (Report, error) {
	if config.Grace <= 0 || config.Since <= config.Grace {
		return Report{}, errors.New("orders: Grace must be positive, and less than Since")
	}
	now, err := postgres.Now(ctx, s.pool)
	if err != nil {
		return Report{}, err
	}
	r := &reconciliation{
		service:  s,
		config:   config,
		now:      now,
		listed:   map[uuid.UUID]struct{}{},
		unbooked: map[uuid.UUID]string{},

		listedRefunds: map[uuid.UUID]struct{}{},
		report:        Report{Since: now.Add(-config.Since), Until: now.Add(-config.Grace), Differences: []Difference{}},
	}
	for _, compare := range []func(context.Context) error{
		r.compareIntents, r.compareOrders, r.compareListedRefunds, r.compareBookedRefunds, r.compareKeys,
	} {
		if err := compare(ctx); err != nil {
			return Report{}, err
		}
	}
	slices.SortStableFunc(r.report.Differences, func(a, b Difference) int {
		return cmp.Compare(a.Kind.gravity(), b.Kind.gravity())
	})
	if config.Fix {
		r.fix(ctx)
	}
	return r.report, nil
}

// reconciliation is one comparison.
type reconciliation struct {
	service *Service
	config  ReconcileConfig
	now     time.Time // at the beginning, by the database's clock
	report  Report

	// What is remembered of the intents is 16 bytes for each order whose intent
	// was listed.
	listed        map[uuid.UUID]struct{}
	listedRefunds map[uuid.UUID]struct{} // the same of refunds

	unbooked map[uuid.UUID]string // charges that their orders do not count, by order
}

// compareIntents goes through the provider's list, newest first. It begins a
// little before the span, because an order at its edge may have an intent that
// is older by the provider's clock.
func (r *reconciliation) compareIntents(ctx context.Context) error {
	var batch []payments.Intent
	var failed error
	flush := func() bool {
		failed = r.compareBatch(ctx, batch)
		batch = batch[:0]
		return failed == nil
	}
	err := r.service.payments.List(ctx, r.report.Since.Add(-clockSkew), time.Time{}, func(i payments.Intent) bool {
		batch = append(batch, i)
		return len(batch) < intentBatch || flush()
	})
	if err != nil {
		return fmt.Errorf("list the provider's intents: %w", err)
	}
	if failed == nil {
		flush()
	}
	return failed
}

func (r *reconciliation) compareBatch(ctx context.Context, batch []payments.Intent) error {
	if len(batch) == 0 {
		return nil
	}
	var ours []payments.Intent
	var references []reference
	for _, i := range batch {
		if reference, known := referenceOf(i); known {
			ours, references = append(ours, i), append(references, reference)
		}
	}
	r.report.Intents += len(ours)
	r.report.ForeignIntents += len(batch) - len(ours)
	entries, err := r.service.lookUp(ctx, references)
	if err != nil {
		return err
	}
	for n, e := range entries {
		if e.intentID == ours[n].ID {
			r.listed[e.orderID] = struct{}{}
		}
		if err := r.compare(ctx, e, ours[n]); err != nil {
			return err
		}
	}
	if r.config.Progress != nil {
		age := r.now.Sub(batch[len(batch)-1].Created)
		r.config.Progress(min(1, max(0, age.Seconds()/r.config.Since.Seconds())))
	}
	return nil
}

// compare reports what the books and one intent do not agree about.
func (r *reconciliation) compare(ctx context.Context, e entry, i payments.Intent) error {
	if r.fresh(e, i) {
		return nil
	}
	kind, detail := e.judge(i), e.compared(i)
	switch kind {
	case "":
		return nil
	case KindChargeWithoutOrder, KindChargeNotBooked:
		other, err := r.otherCharge(ctx, e, i)
		if err != nil {
			return err
		}
		if other != "" {
			kind, detail = KindChargedTwice, detail+", charged on "+other+" too"
		}
		r.unbooked[e.orderID] = i.ID
	}
	r.add(e.difference(kind, detail).about(i))
	return nil
}

// fresh says that a run may have had to do with it in the grace, or an intent
// that was under way for long may have arrived in it.
func (r *reconciliation) fresh(e entry, i payments.Intent) bool {
	return e.touchedAt.After(r.report.Until) || i.Created.After(r.report.Until)
}

// otherCharge returns another intent of the same order that succeeded, or "".
func (r *reconciliation) otherCharge(ctx context.Context, e entry, i payments.Intent) (string, error) {
	if e.intentID != "" && e.intentID != i.ID {
		named, found, err := r.service.readIntent(ctx, e.intentID)
		if err != nil {
			return "", err
		}
		if found && named.Metadata["order_id"] == i.Metadata["order_id"] && charged(named) {
			return named.ID, nil
		}
	}
	return r.unbooked[e.orderID], nil
}

// compareOrders goes through the orders of the span whose intent the list did
// not show.
func (r *reconciliation) compareOrders(ctx context.Context) error {
	accounts, err := r.service.activeAccounts(ctx, r.report.Since, r.report.Until)
	if err != nil {
		return err
	}
	for _, accountID := range accounts {
		before := place{r.report.Until, uuid.Max}
		for more := true; more; {
			var references []reference
			references, before, err = r.service.referencesBefore(ctx, accountID, r.report.Since, before)
			if err != nil {
				return err
			}
			if err := r.comparePage(ctx, references); err != nil {
				return err
			}
			more = len(references) == bookPage
		}
	}
	return nil
}

func (r *reconciliation) comparePage(ctx context.Context, references []reference) error {
	entries, err := r.service.lookUp(ctx, references)
	if err != nil {
		return err
	}
	r.report.Orders += len(entries)
	for _, e := range entries {
		if err := r.compareOrder(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

func (r *reconciliation) compareOrder(ctx context.Context, e entry) error {
	switch _, listed := r.listed[e.orderID]; {
	case e.unfinished, e.touchedAt.After(r.report.Until):
		return nil // the key's run will see to it
	case e.status == StatusPending:
		r.add(e.difference(KindOrderAbandoned, "order pending, no unfinished key"))
		return nil
	case listed, e.intentID == "":
		return nil
	}
	// Not listed is not missing: the intent may be younger than the list.
	i, found, err := r.service.readIntent(ctx, e.intentID)
	switch {
	case err != nil:
		return err
	case found && i.Metadata["order_id"] == e.orderID.String():
		return r.compare(ctx, e, i)
	case found && e.paid():
		r.add(e.difference(KindOrderWithoutCharge, "the intent is about another order").about(i))
	case e.paid():
		r.add(e.difference(KindOrderWithoutCharge, "the provider does not know the intent"))
	}
	return nil
}

// readIntent asks the provider for one intent, which it may not know.
func (s *Service) readIntent(ctx context.Context, id string) (payments.Intent, bool, error) {
	i, err := s.payments.Get(ctx, id)
	failed := providerError(err)
	switch {
	case failed == nil:
		return i, true, nil
	case failed.Code == "resource_missing":
		return payments.Intent{}, false, nil
	default:
		return payments.Intent{}, false, fmt.Errorf("ask the provider for %s: %w", id, failed)
	}
}

// compareKeys reports the keys that nobody works on, however old they are.
func (r *reconciliation) compareKeys(ctx context.Context) error {
	keys, err := r.service.engine.Stuck(ctx, r.config.Grace, stuckLimit)
	if err != nil {
		return err
	}
	for _, key := range keys {
		r.add(stuck(key))
	}
	return nil
}

func (r *reconciliation) add(d Difference) { r.report.Differences = append(r.report.Differences, d) }
