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

// Config configures [Run]. Only LostRows and Fix are optional.
type Config struct {
	Orders   *orders.Service
	Engine   *idempotency.Engine
	Pool     *pgxpool.Pool
	Payments *payments.Client
	Logger   *slog.Logger

	Since time.Duration // how far back to compare; more than Grace
	Grace time.Duration // later activity is ignored, because it may be in progress

	// LostRows also reports recent activity and intents of unknown accounts. No other process
	// may run.
	LostRows bool

	// Fix cancels orphaned intents, applies refund statuses, and with LostRows expires the keys
	// of lost charges.
	Fix bool
}

// Run compares payments and refunds, and lists the unfinished keys that no run holds. Orders
// in progress cause no false alarm: each intent is read before its order, each key between
// two reads of its order, and later activity is ignored.
func Run(ctx context.Context, config Config) (Report, error) {
	if config.Grace <= 0 || config.Since <= config.Grace {
		return Report{}, errors.New("reconcile: Grace must be positive, and less than Since")
	}
	now, err := postgres.Now(ctx, config.Pool)
	if err != nil {
		return Report{}, err
	}
	r := &run{
		Config: config,
		began:  time.Now(),
		report: Report{Since: now.Add(-config.Since), Until: now.Add(-config.Grace), Discrepancies: []Discrepancy{}},
	}
	if r.LostRows {
		r.report.Until = now
	}
	if r.accounts, err = accountIDs(ctx, r.Pool); err != nil {
		return Report{}, err
	}
	intents := comparePayments(r)
	refunds := compareRefunds(r, intents)
	for _, compare := range []func(context.Context) error{
		intents.compareListed, intents.compareRecords, refunds.compareListed, refunds.compareRecords, r.compareKeys,
	} {
		if err := compare(ctx); err != nil {
			return Report{}, err
		}
	}
	r.report.Intents, r.report.ForeignIntents, r.report.UnknownIntents = intents.ours, intents.foreign, intents.unknown
	r.report.Orders, r.report.Refunds = intents.records, refunds.ours
	slices.SortStableFunc(r.report.Discrepancies, func(a, b Discrepancy) int { return cmp.Compare(a.Kind.severity(), b.Kind.severity()) })
	if r.Fix {
		r.fix(ctx, intents, refunds)
	}
	return r.report, nil
}

type run struct {
	Config
	accounts []uuid.UUID // all
	report   Report
	began    time.Time // by this process's clock
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
