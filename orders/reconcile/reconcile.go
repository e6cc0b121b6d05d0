package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
)

// maxStuckKeys bounds the keys in a report. If there are more, no completer runs.
const maxStuckKeys = 10_000

// Config is what a [Reconciler] needs. Only LostRows and Fix are optional.
type Config struct {
	Orders   *orders.Service
	Engine   *idempotency.Engine
	Pool     *pgxpool.Pool
	Payments *payments.Client
	Logger   *slog.Logger

	Since time.Duration // how far back to compare; more than Grace
	Grace time.Duration // ignore later activity, which may be in progress (R9: COMPLETER_GRACE)

	// LostRows also reports recent activity, and the intents of unknown accounts. It is
	// for a database that lost rows, and requires that no other process runs.
	LostRows bool

	// Fix cancels orphaned intents and applies the provider's refund status. With
	// LostRows it also expires the key of a charge whose order is lost. Without it
	// nothing is changed.
	Fix bool
}

// Reconciler compares our records with the provider's.
type Reconciler struct{ Config }

// New returns a Reconciler, or an error if the configuration is incomplete.
func New(config Config) (*Reconciler, error) {
	switch {
	case config.Orders == nil, config.Engine == nil, config.Pool == nil, config.Payments == nil, config.Logger == nil:
		return nil, errors.New("reconcile: Orders, Engine, Pool, Payments and Logger are needed")
	case config.Grace <= 0, config.Since <= config.Grace:
		return nil, errors.New("reconcile: Grace must be positive, and less than Since")
	}
	return &Reconciler{config}, nil
}

// Run compares payments, then refunds, then lists the keys that no run holds. An
// error means that the comparison is incomplete and that nothing was fixed.
//
// It raises no false alarm while orders are being made. An order is committed
// before its intent is created, and an intent succeeds before its charge is
// recorded; here each intent is read before its order. So anything without
// activity for Grace before the start cannot have changed between the two reads.
// Later activity is ignored until the next run.
func (r *Reconciler) Run(ctx context.Context) (Report, error) {
	now, err := postgres.Now(ctx, r.Pool)
	if err != nil {
		return Report{}, err
	}
	accounts, err := accountIDs(ctx, r.Pool)
	if err != nil {
		return Report{}, err
	}
	report := Report{Since: now.Add(-r.Since), Until: now.Add(-r.Grace), Discrepancies: []Discrepancy{}}
	if r.LostRows {
		report.Until = now
	}
	c := &run{Config: r.Config, accounts: accounts, report: report}
	intents := comparePayments(c)
	refunds := compareRefunds(c, intents)
	for _, compare := range []func(context.Context) error{
		intents.compareListed, intents.compareRecords, refunds.compareListed, refunds.compareRecords, c.compareKeys,
	} {
		if err := compare(ctx); err != nil {
			return Report{}, err
		}
	}
	c.report.Intents, c.report.ForeignIntents, c.report.UnknownIntents = intents.ours, intents.foreign, intents.unknown
	c.report.Orders, c.report.Refunds = intents.records, refunds.ours
	slices.SortStableFunc(c.report.Discrepancies, func(a, b Discrepancy) int { return cmp.Compare(a.Kind.severity(), b.Kind.severity()) })
	if r.Fix {
		c.fix(ctx, intents, refunds)
	}
	return c.report, nil
}

// run is one run of a Reconciler.
type run struct {
	Config
	accounts []uuid.UUID // all, sorted
	report   Report
}

// compareKeys reports the unfinished keys that no run holds, at any age.
func (r *run) compareKeys(ctx context.Context) error {
	keys, err := r.Engine.Stuck(ctx, r.Grace, maxStuckKeys)
	if err != nil {
		return err
	}
	for _, key := range keys {
		kind := KeyStuck
		if key.NeedsReviewAt != nil {
			kind = KeyNeedsReview
		}
		detail := fmt.Sprintf("%s at %s after %d runs, the last at %s",
			key.Operation, key.Point, key.Attempt, key.LastRunAt.UTC().Format(time.RFC3339))
		if key.LastError != "" {
			detail += ": " + key.LastError
		}
		order, refund := orders.ResourcesOf(key)
		r.report.Discrepancies = append(r.report.Discrepancies,
			Discrepancy{Kind: kind, AccountID: key.AccountID, OrderID: order, RefundID: refund, KeyID: key.ID, Detail: detail})
	}
	return nil
}
