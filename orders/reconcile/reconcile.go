package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/orders"
	"example.com/orders-api/orders/changes"
	"example.com/orders-api/payments"
)

// Config configures [Run].
type Config struct {
	Orders  *orders.Service
	Changes *changes.Inbox

	Since time.Duration // how far back to compare; more than Grace
	Grace time.Duration // activity within it may be in progress, so it is ignored

	// LostRows includes recent activity and unknown accounts. No other process may run.
	LostRows bool

	// Fix cancels orphaned intents, reads and records the refunds and disputes of orders that differ, and with
	// LostRows expires the keys of lost charges.
	Fix   bool
	Actor string // for the audit records
}

// Run compares payments, refunds and disputes. Orders in progress cause no false alarm, because each intent is
// read before its order, each order together with its key, and recent activity is ignored.
func Run(ctx context.Context, config Config) (Report, error) {
	client := config.Orders.Payments
	now, err := postgres.Now(ctx, config.Orders.Pool)
	if err != nil {
		return Report{}, err
	}
	r := &run{Config: config, began: now, started: time.Now(), unread: map[uuid.UUID]string{}, report: Report{
		Since: now.Add(-config.Since), Until: now.Add(-config.Grace), Discrepancies: []Discrepancy{},
	}, listedOrders: map[uuid.UUID]struct{}{}, listedRefunds: []string{}}
	if r.LostRows {
		r.report.Until = now
	}
	r.accounts, err = postgres.Collect(ctx, r.Orders.Pool, "read accounts", pgx.RowTo[uuid.UUID], "SELECT id FROM accounts")
	if err != nil {
		return Report{}, err
	}
	steps := []func(context.Context) error{
		func(ctx context.Context) error { return eachPage(ctx, r, "intents", client.List, r.compareIntents) },
		r.checkProviderAccount,
		r.compareOrders,
		func(ctx context.Context) error {
			return eachPage(ctx, r, "refunds", client.ListAllRefunds, r.compareRefunds)
		},
		func(ctx context.Context) error {
			return eachPage(ctx, r, "disputes", client.ListAllDisputes, r.compareDisputes)
		},
		r.record,
		r.compareEarlier,
		r.record,
	}
	if r.Fix {
		steps = append(steps, r.fix, r.readAgain)
	}
	for _, step := range append(steps, r.settle) {
		if err := step(ctx); err != nil {
			return Report{}, err
		}
	}
	return r.report, nil
}

type run struct {
	Config
	began    time.Time // by the database's clock
	started  time.Time // by this process's clock
	report   Report
	recorded int // of its discrepancies

	accounts      []uuid.UUID            // all
	listedOrders  map[uuid.UUID]struct{} // whose intents were listed
	listedRefunds []string
	differ        []jobID              // orders whose refunds or disputes differ
	doubtful      []jobID              // orders whose refunds an earlier read has not found
	unread        map[uuid.UUID]string // why the refunds and disputes of an order could not be read
}

// eachPage compares the pages of a list. What cannot be read is recorded, and hides no other object.
func eachPage[T any](ctx context.Context, r *run, what string,
	list func(ctx context.Context, since, until time.Time, after string) ([]T, string, error), compare func(context.Context, []T) error,
) error {
	for after := ""; ; {
		page, next, err := list(ctx, r.report.Since.Add(-payments.ClockSkew), time.Time{}, after)
		if err != nil && payments.UnreadableIDs(err) == nil {
			return fmt.Errorf("list the provider's %s: %w", what, err)
		}
		if err := errors.Join(r.recordUnreadable(ctx, err), compare(ctx, page)); err != nil {
			return err
		}
		if after = next; after == "" {
			return nil
		}
	}
}

// recent reports whether a run may have been active since Until, if these are its times. A time in the far future
// does not count, because it was set while a clock ran ahead.
func (r *run) recent(times ...*time.Time) bool {
	if r.LostRows {
		return false // no run is active
	}
	future := r.report.Until.Add(r.Grace + time.Since(r.started) + payments.ClockSkew)
	return slices.ContainsFunc(times, func(at *time.Time) bool {
		return at != nil && at.After(r.report.Until) && at.Before(future)
	})
}

func (r *run) hasAccount(id uuid.UUID) bool { return slices.Contains(r.accounts, id) }

// Kind classifies a discrepancy by its remedy. The values are stable.
type Kind string

// The kinds, the most severe first.
const (
	DuplicateCharge     Kind = "duplicate_charge"        // the order records another charge
	UnrecordedCharge    Kind = "unrecorded_charge"       // the order is lost or not paid
	MissingAtProvider   Kind = changes.MissingAtProvider // a recorded charge or refund does not exist
	AmountMismatch      Kind = "amount_mismatch"         // the amounts or the currencies differ
	UnrecordedRefund    Kind = "unrecorded_refund"       // our record is lost, or the refund was made at the dashboard
	OpenIntent          Kind = "open_intent"             // it can succeed although its order is finished or lost
	OrphanedRecord      Kind = changes.OrphanedRecord    // a pending order or refund has no unfinished key
	RefundStatusChanged Kind = "refund_status_changed"   // no event has reported the change
	OrphanedIntent      Kind = "orphaned_intent"         // it is not charged, and no run will use it
)

var bySeverity = []Kind{
	DuplicateCharge, UnrecordedCharge, MissingAtProvider, AmountMismatch, UnrecordedRefund, OpenIntent,
	OrphanedRecord, RefundStatusChanged, OrphanedIntent,
}

// Discrepancy is a difference from the provider, without a client's data.
type Discrepancy struct {
	ID      uuid.UUID  `json:"id,omitzero"`        // for an acknowledgement
	FoundAt *time.Time `json:"found_at,omitempty"` // the first time
	Kind    Kind       `json:"kind"`
	IDs
	RefundID         uuid.UUID `json:"refund_id,omitzero"`
	IntentID         string    `json:"intent_id,omitempty"`
	ProviderRefundID string    `json:"provider_refund_id,omitempty"`

	Local    Money     `json:"local,omitzero"`
	Provider Money     `json:"provider,omitzero"`
	Created  time.Time `json:"created,omitzero"` // at the provider

	Detail   string          `json:"detail,omitempty"` // for people
	Data     json.RawMessage `json:"data,omitempty"`   // instead of the other members, if another command found it
	Fixed    bool            `json:"fixed"`
	FixError string          `json:"fix_error,omitempty"`

	staged bool // for a read of its order's refunds and disputes, which ends the discrepancy
}

// IDs are those of an account, an order, also of a lost one, and its key.
type IDs struct {
	AccountID uuid.UUID `json:"account_id"`
	OrderID   uuid.UUID `json:"order_id,omitzero"`
	KeyID     uuid.UUID `json:"key_id,omitzero"`
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
	Refunds        int           `json:"refunds"`         // that the provider listed
	Discrepancies  []Discrepancy `json:"discrepancies"`   // the most severe first, never nil
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
