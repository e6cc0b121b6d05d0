package reconcile

import (
	"cmp"
	"context"
	"errors"
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

// Config configures [Run].
type Config struct {
	Orders   *orders.Service
	Engine   *idempotency.Engine
	Pool     *pgxpool.Pool
	Payments *payments.Client
	Logger   *slog.Logger

	Since time.Duration // how far back to compare; more than Grace
	Grace time.Duration // later activity may be in progress, so it is ignored

	// LostRows includes recent activity and unknown accounts. No other process may run.
	LostRows bool

	// Fix cancels orphaned intents, applies refund statuses, and with LostRows expires the keys
	// of lost charges.
	Fix bool
}

// Run compares payments and refunds. Orders in progress cause no false alarm: each intent is
// read before its order, each key between two reads of its order, and later activity is ignored.
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
		intents.compareListed, intents.compareRecords, refunds.compareListed, refunds.compareRecords,
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
