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

const maxStuckKeys = 10_000 // in a report

// Config configures a [Reconciler]. Only LostRows and Fix are optional.
type Config struct {
	Orders   *orders.Service
	Engine   *idempotency.Engine
	Pool     *pgxpool.Pool
	Payments *payments.Client
	Logger   *slog.Logger

	Since time.Duration // how far back to compare; more than Grace
	Grace time.Duration // later activity is ignored, because it may be in progress (R9)

	// LostRows also reports recent activity and the intents of unknown accounts, for a
	// database that lost rows. No other process may run.
	LostRows bool

	// Fix cancels orphaned intents and applies the provider's refund status. With LostRows
	// it also expires the key of a charge whose order is lost.
	Fix bool
}

// Reconciler compares our records with the provider's.
type Reconciler struct{ Config }

// New returns a Reconciler, or an error if the configuration is invalid.
func New(config Config) (*Reconciler, error) {
	switch {
	case config.Orders == nil, config.Engine == nil, config.Pool == nil, config.Payments == nil, config.Logger == nil:
		return nil, errors.New("reconcile: Orders, Engine, Pool, Payments and Logger are needed")
	case config.Grace <= 0, config.Since <= config.Grace:
		return nil, errors.New("reconcile: Grace must be positive, and less than Since")
	}
	return &Reconciler{config}, nil
}

// Run compares payments and refunds, and lists the unfinished keys that no run holds. After
// an error, nothing is fixed.
//
// Orders that are in progress cause no false alarm: each intent is read before its order,
// and a record without activity for Grace cannot change between the two reads.
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

type run struct {
	Config
	accounts []uuid.UUID // all, sorted
	report   Report
}

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
