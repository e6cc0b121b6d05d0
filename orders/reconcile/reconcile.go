package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/orders"
	"example.com/orders-api/orders/changes"
)

// Config configures [Run].
type Config struct {
	Orders  *orders.Service
	Changes *changes.Inbox

	Since time.Duration // how far back to compare; more than Grace
	Grace time.Duration // activity within it may be in progress, so it is ignored

	// LostRows includes recent activity and unknown accounts. No other process may run.
	LostRows bool

	// Fix cancels orphaned intents, applies refund statuses, and with LostRows expires the keys
	// of lost charges.
	Fix   bool
	Actor string // for the audit records
}

// Run compares payments and refunds. Orders in progress cause no false alarm, because each intent is
// read before its order, each order together with its key, and recent activity is ignored.
func Run(ctx context.Context, config Config) (Report, error) {
	now, err := postgres.Now(ctx, config.Orders.Pool)
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
	if r.accounts, err = accountIDs(ctx, r.Orders.Pool); err != nil {
		return Report{}, err
	}
	intents := comparePayments(r)
	refunds := compareRefunds(r, intents)
	for _, compare := range []func(context.Context) error{
		intents.compareListed, intents.checkProviderAccount, intents.compareRecords, refunds.compareListed, refunds.compareRecords,
	} {
		if err := compare(ctx); err != nil {
			return Report{}, err
		}
	}
	compared := len(r.report.Discrepancies)
	if err := errors.Join(r.record(ctx, r.report.Discrepancies), r.compareEarlier(ctx, intents, refunds)); err != nil {
		return Report{}, err
	}
	if err := r.record(ctx, r.report.Discrepancies[compared:]); err != nil {
		return Report{}, err
	}
	r.report.Intents, r.report.ForeignIntents, r.report.UnknownIntents = intents.ours, intents.foreign, intents.unknown
	r.report.Orders, r.report.Refunds = intents.records, refunds.ours
	slices.SortStableFunc(r.report.Discrepancies, func(a, b Discrepancy) int {
		return slices.Index(bySeverity, a.Kind) - slices.Index(bySeverity, b.Kind)
	})
	if err := r.markExpired(ctx); err != nil {
		return Report{}, err
	}
	if r.Fix {
		r.fix(ctx, intents, refunds)
	}
	if err := r.settle(ctx); err != nil {
		return Report{}, err
	}
	return r.report, nil
}

type run struct {
	Config
	accounts []uuid.UUID // all
	report   Report
	earlier  []jobs.Job // discrepancies that were open before this run
	began    time.Time  // by this process's clock
}

// Kind classifies a discrepancy by its remedy. The values are stable.
type Kind string

// The kinds, the most severe first.
const (
	DuplicateCharge     Kind = "duplicate_charge"      // the order records another charge
	UnrecordedCharge    Kind = "unrecorded_charge"     // the order is lost or not paid
	MissingAtProvider   Kind = "missing_at_provider"   // a recorded charge or refund does not exist
	AmountMismatch      Kind = "amount_mismatch"       // the amounts or the currencies differ
	UnrecordedRefund    Kind = "unrecorded_refund"     // our record is lost, or the refund was made at the dashboard
	OpenIntent          Kind = "open_intent"           // it can succeed although its order is finished or lost
	OrphanedRecord      Kind = "orphaned_record"       // a pending order or refund has no unfinished key
	RefundStatusChanged Kind = "refund_status_changed" // no event has reported the change
	OrphanedIntent      Kind = "orphaned_intent"       // it is not charged, and no run will use it
)

var bySeverity = []Kind{
	DuplicateCharge, UnrecordedCharge, MissingAtProvider, AmountMismatch, UnrecordedRefund, OpenIntent,
	OrphanedRecord, RefundStatusChanged, OrphanedIntent,
}

// Discrepancy is a difference from the provider, without a client's data.
type Discrepancy struct {
	ID               uuid.UUID  `json:"id,omitzero"`        // for an acknowledgement
	FoundAt          *time.Time `json:"found_at,omitempty"` // the first time
	Kind             Kind       `json:"kind"`
	AccountID        uuid.UUID  `json:"account_id"`
	OrderID          uuid.UUID  `json:"order_id,omitzero"` // set for a lost order, too
	RefundID         uuid.UUID  `json:"refund_id,omitzero"`
	KeyID            uuid.UUID  `json:"key_id,omitzero"`
	IntentID         string     `json:"intent_id,omitempty"`
	ProviderRefundID string     `json:"provider_refund_id,omitempty"`

	Local    Money     `json:"local,omitzero"`
	Provider Money     `json:"provider,omitzero"`
	Created  time.Time `json:"created,omitzero"` // at the provider

	Detail   string          `json:"detail,omitempty"` // for people
	Data     json.RawMessage `json:"data,omitempty"`   // instead of the other members, if another command found it
	Fixed    bool            `json:"fixed"`
	FixError string          `json:"fix_error,omitempty"`
}

// Money is an amount in the smallest unit.
type Money struct {
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
}

// Report is the result of a comparison.
type Report struct {
	Since          time.Time     `json:"since"` // by the database's clock
	Until          time.Time     `json:"until"` // later activity is ignored
	Intents        int           `json:"intents"`
	ForeignIntents int           `json:"foreign_intents"` // of other programs, ignored
	UnknownIntents int           `json:"unknown_intents"` // of unknown accounts, ignored without LostRows
	Orders         int           `json:"orders"`
	Refunds        int           `json:"refunds"`       // the provider's, of our payments
	Discrepancies  []Discrepancy `json:"discrepancies"` // the most severe first, never nil
}

// Open counts the discrepancies that are not fixed.
func (r Report) Open() (n int) {
	for _, d := range r.Discrepancies {
		if !d.Fixed {
			n++
		}
	}
	return n
}
