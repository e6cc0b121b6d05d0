package reconcile

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/audit"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
)

// Options configure [Service.Compare].
type Options struct {
	Since time.Duration // how far back to compare; more than Grace
	Grace time.Duration // activity within it may be in progress, so it is ignored

	// LostRows includes recent activity and unknown accounts. No other process may run.
	LostRows bool

	// Fix cancels orphaned intents, and with LostRows expires the keys of lost charges.
	Fix   bool
	Actor string // for the audit records
}

// Compare compares payments, refunds and disputes, and works off the jobs of the orders whose refunds or disputes
// differ. Orders in progress cause no false alarm, because each intent is read before its order, each order together
// with its key, and recent activity is ignored.
func (s *Service) Compare(ctx context.Context, options Options) (Report, error) {
	now, err := httpjson.QueryRow(ctx, s.Orders.Pool, pgx.RowTo[time.Time], "SELECT now()")
	if err != nil {
		return Report{}, err
	}
	r := &run{
		Service: s, Options: options, began: now, started: time.Now(), batch: &pgx.Batch{},
		report:        Report{Since: now.UTC().Add(-options.Since), Until: now.UTC().Add(-options.Grace), Discrepancies: []Discrepancy{}},
		found:         map[uuid.UUID]*Discrepancy{},
		listedOrders:  map[uuid.UUID]struct{}{},
		listedRefunds: []string{},
		unread:        map[uuid.UUID]struct{}{},
	}
	if r.LostRows {
		r.report.Until = now.UTC()
	}
	all, err := accounts.List(ctx, s.Orders.Pool)
	if err != nil {
		return Report{}, err
	}
	for _, account := range all {
		r.accounts = append(r.accounts, account.ID)
	}
	client := s.Orders.Payments
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
		r.compareEarlier,
	}
	if !r.LostRows { // what was lost differs from a list, and the shop is closed until the comparison ends
		steps = append(steps, r.stageReads)
	}
	if r.Fix {
		steps = append(steps, r.fix)
	}
	for _, step := range append(steps, r.readAgain, r.settle) {
		if err := cmp.Or(step(ctx), r.flush(ctx)); err != nil {
			return Report{}, err
		}
	}
	return r.report, nil
}

type run struct {
	*Service
	Options

	began   time.Time // by the database's clock
	started time.Time // by this process's clock
	report  Report
	found   map[uuid.UUID]*Discrepancy // by this run, by their ids
	batch   *pgx.Batch                 // of what was found, see flush

	accounts      []uuid.UUID            // all
	listedOrders  map[uuid.UUID]struct{} // whose intents were listed
	listedRefunds []string
	unread        map[uuid.UUID]struct{} // orders whose jobs have failed
}

// eachPage compares the pages of a list. What cannot be read is reported, and hides no other object.
func eachPage[T any](ctx context.Context, r *run, what string,
	list func(ctx context.Context, since time.Time, after string) ([]T, string, error), compare func(context.Context, []T) error,
) error {
	for after := ""; ; {
		page, next, err := list(ctx, r.report.Since.Add(-payments.ClockSkew), after)
		if err != nil && payments.UnreadableIDs(err) == nil {
			return fmt.Errorf("list the provider's %s: %w", what, err)
		}
		r.reportUnreadable(err)
		if err := cmp.Or(compare(ctx, page), r.flush(ctx)); err != nil {
			return err
		}
		if after = next; after == "" {
			return nil
		}
	}
}

// flush stores what was found, so that later runs report it, too, even if a later run does not reach as far back.
func (r *run) flush(ctx context.Context) error {
	if r.batch.Len() == 0 {
		return nil
	}
	err := r.Orders.Pool.SendBatch(ctx, r.batch).Close()
	if err != nil {
		err = fmt.Errorf("record what was found: %w", postgres.Translate(err))
	}
	r.batch = &pgx.Batch{}
	return err
}

// add adds a discrepancy, if it has a kind, to those that flush stores.
func (r *run) add(d Discrepancy) {
	if d.Kind == "" {
		return
	}
	d.ID, d.FoundAt = uuid.Nil, nil
	d.ID = jobs.Report(r.batch, d.AccountID, string(d.Kind), d, d.OrderID.String(), d.RefundID.String(), d.IntentID, d.ProviderRefundID)
	r.found[d.ID] = &d
}

// reportUnreadable reports objects that the provider returned in a form that this program does not understand. They
// may belong to another program.
func (r *run) reportUnreadable(err error) {
	for _, id := range payments.UnreadableIDs(err) {
		jobs.Report(r.batch, uuid.Nil, "object_unreadable", map[string]string{"object_id": id}, id)
	}
}

// recent reports whether one of the times, at which runs or the provider have changed a record, is after Until, so that
// a run may still be active. A time in the far future does not count, because it was set while a clock ran ahead.
func (r *run) recent(times ...time.Time) bool {
	if r.LostRows {
		return false // no run is active
	}
	future := r.report.Until.Add(r.Grace + time.Since(r.started) + payments.ClockSkew)
	return slices.ContainsFunc(times, func(at time.Time) bool { return at.After(r.report.Until) && at.Before(future) })
}

func (r *run) hasAccount(id uuid.UUID) bool { return slices.Contains(r.accounts, id) }

// open returns the discrepancies that are stored and open, the oldest first.
func (r *run) open(ctx context.Context) (open []Discrepancy, err error) {
	all, err := jobs.Open(ctx, r.Orders.Pool)
	for _, j := range all {
		var d Discrepancy
		if err := json.Unmarshal(j.Args, &d); err != nil {
			return nil, fmt.Errorf("read discrepancy %s: %w", j.ID, err)
		}
		if d.Kind == "" {
			d = Discrepancy{Kind: Kind(j.LastError), IDs: IDs{AccountID: j.AccountID}, Data: j.Args}
		}
		d.ID, d.FoundAt = j.ID, &j.CreatedAt
		open = append(open, d)
	}
	return open, err
}

// compared reports whether a comparison has found the discrepancy, and not Sync or another command.
func (d Discrepancy) compared() bool { return d.Data == nil && d.ReadAt.IsZero() }

// absent reports whether Sync has found that the provider does not have our refund. Only another read can end that.
func (d Discrepancy) absent() bool {
	return !d.ReadAt.IsZero() && (d.Kind == MissingAtProvider || d.Kind == OrphanedRecord)
}

// compareEarlier compares again what an earlier run has found and this one has not listed.
func (r *run) compareEarlier(ctx context.Context) error {
	open, err := r.open(ctx)
	for _, d := range open {
		if d.absent() {
			r.stageRead(orderID{d.AccountID, d.OrderID})
		}
		if _, listed := r.found[d.ID]; listed || !d.compared() {
			continue
		}
		now, decided, err := r.compareAgain(ctx, d)
		if err != nil {
			return err
		}
		if !decided {
			now = d
		}
		r.add(now)
	}
	return err
}

// readAgain works off the jobs that were staged (R27, the provider's events). The report has those that are left.
func (r *run) readAgain(ctx context.Context) error {
	left, err := r.Worker().Drain(ctx)
	if err != nil {
		return fmt.Errorf("read refunds and disputes: %w", err)
	}
	for _, j := range left {
		r.unread[j.ID] = struct{}{}
		if j.LastError == idempotency.ErrActionRequired.Error() {
			continue // nothing is charged until the customer approves the payment
		}
		r.report.Discrepancies = append(r.report.Discrepancies, Discrepancy{
			Kind: orders.ChangeJob, IDs: IDs{AccountID: j.AccountID, OrderID: j.ID}, FixError: j.LastError,
		})
	}
	return nil
}

// settle deletes what was fixed or does not differ any more, and reports what else is open and not acknowledged, also
// what Sync and other commands have found.
func (r *run) settle(ctx context.Context) error {
	open, err := r.open(ctx)
	if err != nil {
		return err
	}
	var gone []uuid.UUID
	for _, d := range open {
		found, again := r.found[d.ID]
		_, unread := r.unread[d.OrderID]
		switch {
		case again:
			found.FoundAt = d.FoundAt
			d = *found
		case d.compared() && d.FoundAt.Before(r.began), // not of a concurrent run
			d.absent() && !unread && d.ReadAt.Before(r.began):
			gone = append(gone, d.ID)
			continue
		}
		if d.Fixed {
			gone = append(gone, d.ID)
		}
		r.report.Discrepancies = append(r.report.Discrepancies, d)
	}
	return jobs.Resolve(ctx, r.Orders.Pool, gone...)
}

// Kind classifies a discrepancy by its remedy. The values are stable.
type Kind string

// The kinds that a comparison finds. Sync finds others, and a job of changes that is left is one.
const (
	DuplicateCharge   Kind = "duplicate_charge"    // the order records another charge
	UnrecordedCharge  Kind = "unrecorded_charge"   // the order is lost or not paid
	MissingAtProvider Kind = "missing_at_provider" // a recorded charge or refund does not exist
	AmountMismatch    Kind = "amount_mismatch"     // the amounts or the currencies differ
	UnrecordedRefund  Kind = "unrecorded_refund"   // no order records its payment
	OpenIntent        Kind = "open_intent"         // it can succeed although its order is finished or lost
	OrphanedRecord    Kind = "orphaned_record"     // a pending order or refund has no unfinished key
	OrphanedIntent    Kind = "orphaned_intent"     // it is not charged, and no run will use it
)

// Discrepancy is a difference from the provider, without a client's data.
type Discrepancy struct {
	ID      uuid.UUID  `json:"id,omitzero"`        // for an acknowledgement; none of a job
	FoundAt *time.Time `json:"found_at,omitempty"` // the first time
	Kind    Kind       `json:"kind"`
	IDs
	RefundID         uuid.UUID `json:"refund_id,omitzero"`
	IntentID         string    `json:"intent_id,omitempty"`
	ProviderRefundID string    `json:"provider_refund_id,omitempty"`

	Local    Money     `json:"local,omitzero"`
	Provider Money     `json:"provider,omitzero"`
	Created  time.Time `json:"created,omitzero"` // at the provider
	ReadAt   time.Time `json:"read_at,omitzero"` // when Sync read the order's refunds

	Detail   string          `json:"detail,omitempty"` // for people
	Data     json.RawMessage `json:"data,omitempty"`   // instead of the other members, if another command found it
	Fixed    bool            `json:"fixed"`
	FixError string          `json:"fix_error,omitempty"`
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
	ForeignIntents int           `json:"foreign_intents"` // of other programs or databases, ignored
	Refunds        int           `json:"refunds"`         // that the provider listed
	Discrepancies  []Discrepancy `json:"discrepancies"`   // never nil
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

// fix ends what no job can end.
func (r *run) fix(ctx context.Context) error {
	for _, d := range r.found {
		var err error
		switch {
		case d.Kind == OrphanedIntent:
			d.Fixed, err = r.cancel(ctx, *d)
		case r.LostRows && d.Local == (Money{}) && !strings.HasSuffix(d.Detail, keyExpired) && (d.Kind == UnrecordedCharge || d.Kind == OpenIntent):
			err = r.expireKey(ctx, d) // the charge itself needs an operator
		default:
			continue
		}
		if err != nil {
			d.FixError = err.Error()
		}
	}
	return nil
}

// expireKey rejects retries of a charged order whose rows are lost (R17, used for ever): once the
// provider's keys have expired, they would charge again.
func (r *run) expireKey(ctx context.Context, d *Discrepancy) error {
	err := r.verify(ctx, *d)
	if err == nil {
		record := &pgx.Batch{}
		audit.WriteKeyTx(record, d.AccountID, d.KeyID, "key.expire", audit.Operator{Actor: r.Actor, Reason: "the rows of " + d.IntentID + " were lost"})
		err = r.Orders.Pool.SendBatch(ctx, record).Close()
	}
	if err == nil {
		err = r.Orders.Engine.ExpireLost(ctx, d.AccountID, d.KeyID, orders.CreateOperation, orders.Path, d.Created)
	}
	if err == nil {
		d.Detail += ", " + keyExpired
	}
	return err
}

const (
	keyExpired     = "key expired"
	unknownAccount = "unknown account"
)

// verify compares again, because a client may have retried since.
func (r *run) verify(ctx context.Context, d Discrepancy) error {
	now, _, err := r.compareAgain(ctx, d)
	switch {
	case err != nil:
		return err
	case now.Kind != d.Kind:
		return errors.New("it has changed since it was listed")
	case !r.hasAccount(d.AccountID):
		return errors.New("the account is unknown, so the intent may belong to another database")
	default:
		return nil
	}
}

// cancel cancels an intent, and then compares again, because the response may be lost although the intent is
// cancelled.
func (r *run) cancel(ctx context.Context, d Discrepancy) (fixed bool, err error) {
	if err := r.verify(ctx, d); err != nil {
		return false, err
	}
	// The key is random, because the provider may repeat a 500 under an earlier one.
	_, failed := r.Orders.Payments.Cancel(ctx, "orders-api-reconcile-"+uuid.NewString(), d.IntentID)
	now, decided, err := r.compareAgain(ctx, d)
	if decided && now.Kind == "" {
		return true, nil
	}
	return false, cmp.Or(failed, err, fmt.Errorf("still %s", now.Kind))
}
