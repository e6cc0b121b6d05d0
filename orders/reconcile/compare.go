package reconcile

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/payments"
)

// Options configure [Service.Compare].
type Options struct {
	Since time.Duration // how far back to compare; more than Grace
	Grace time.Duration // activity within it may be in progress, so it is ignored

	// LostRows includes recent activity and unknown accounts. No other process may run.
	LostRows bool

	// Fix cancels orphaned intents, works off the jobs of the orders whose refunds or disputes differ, and with
	// LostRows expires the keys of lost charges. Without Fix, a worker works off these jobs.
	Fix   bool
	Actor string // for the audit records
}

// Compare compares payments, refunds and disputes. Orders in progress cause no false alarm, because each intent is
// read before its order, each order together with its key, and recent activity is ignored.
func (s *Service) Compare(ctx context.Context, options Options) (Report, error) {
	client := s.Orders.Payments
	now, err := postgres.Now(ctx, s.Orders.Pool)
	if err != nil {
		return Report{}, err
	}
	r := &run{
		Service: s, Options: options, began: now, started: time.Now(), batch: &pgx.Batch{},
		report:        Report{Since: now.Add(-options.Since), Until: now.Add(-options.Grace), Discrepancies: []Discrepancy{}},
		found:         map[uuid.UUID]int{},
		listedOrders:  map[uuid.UUID]struct{}{},
		listedRefunds: []string{},
		unread:        map[uuid.UUID]string{},
	}
	if r.LostRows {
		r.report.Until = now
	}
	r.accounts, err = postgres.Collect(ctx, s.Orders.Pool, "read accounts", pgx.RowTo[uuid.UUID], "SELECT id FROM accounts")
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
		r.compareEarlier,
		r.stageReads,
	}
	if r.Fix {
		steps = append(steps, r.fix, r.readAgain)
	}
	for _, step := range append(steps, r.settle) {
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
	found   map[uuid.UUID]int // places of the stored discrepancies in the report, by their ids
	batch   *pgx.Batch        // of what was found, see flush

	accounts      []uuid.UUID            // all
	listedOrders  map[uuid.UUID]struct{} // whose intents were listed
	listedRefunds []string
	toRead        []orderID            // orders whose refunds and disputes have to be read
	unread        map[uuid.UUID]string // why those of an order could not be read
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

// add adds a discrepancy, if it has a kind, to the report and to those that flush stores.
func (r *run) add(d Discrepancy) {
	if d.Kind == "" {
		return
	}
	d.ID, d.FoundAt = uuid.Nil, nil
	id := jobs.Report(r.batch, d.AccountID, string(d.Kind), d, d.OrderID.String(), d.RefundID.String(), d.IntentID, d.ProviderRefundID)
	if _, twice := r.found[id]; twice {
		return
	}
	r.found[id], d.ID = len(r.report.Discrepancies), id
	r.report.Discrepancies = append(r.report.Discrepancies, d)
}

// reportUnreadable reports objects that the provider returned in a form that this program does not understand. They
// may belong to another program.
func (r *run) reportUnreadable(err error) {
	for _, id := range payments.UnreadableIDs(err) {
		jobs.Report(r.batch, uuid.Nil, "object_unreadable", map[string]string{"object_id": id}, id)
	}
}

// recent reports whether a run may have been active since Until, if these are its times. A time in the far future
// does not count, because it was set while a clock ran ahead.
func (r *run) recent(times ...time.Time) bool {
	if r.LostRows {
		return false // no run is active
	}
	future := r.report.Until.Add(r.Grace + time.Since(r.started) + payments.ClockSkew)
	return slices.ContainsFunc(times, func(at time.Time) bool { return at.After(r.report.Until) && at.Before(future) })
}

func (r *run) hasAccount(id uuid.UUID) bool { return slices.Contains(r.accounts, id) }

// open returns the discrepancies that are stored and open.
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

// compareEarlier compares again what this run has not listed. What Sync has found, only another read can end.
func (r *run) compareEarlier(ctx context.Context) error {
	open, err := r.open(ctx)
	for _, d := range open {
		_, listed := r.found[d.ID]
		switch {
		case !d.compared():
			r.toRead = append(r.toRead, orderID{d.AccountID, d.OrderID})
		case listed:
		case d.ProviderRefundID != "":
			err = r.compareRefundAgain(ctx, d)
		default:
			var now Discrepancy
			var decided bool
			if now, decided, err = r.compareAgain(ctx, d); !decided {
				now = d
			}
			r.add(now)
		}
		if err != nil {
			return err
		}
	}
	return err
}

// settle deletes what was fixed or does not differ any more. The report keeps what is open, with what Sync and other
// commands have found, and omits what an operator has acknowledged.
func (r *run) settle(ctx context.Context) error {
	open, err := r.open(ctx)
	if err != nil {
		return err
	}
	var others []Discrepancy
	var gone []uuid.UUID
	for _, d := range open {
		i, found := r.found[d.ID]
		switch {
		case found && !r.report.Discrepancies[i].Fixed:
			r.report.Discrepancies[i].FoundAt = d.FoundAt
		case found, d.compared() && d.FoundAt.Before(r.began), r.absent(d): // not of a concurrent run
			gone = append(gone, d.ID)
		case !d.compared():
			others = append(others, d)
		}
	}
	ours := slices.DeleteFunc(r.report.Discrepancies, func(d Discrepancy) bool {
		return d.ID != uuid.Nil && d.FoundAt == nil && !d.Fixed
	})
	slices.SortStableFunc(ours, func(a, b Discrepancy) int { return slices.Index(bySeverity, a.Kind) - slices.Index(bySeverity, b.Kind) })
	r.report.Discrepancies = append(ours, others...)
	return jobs.Resolve(ctx, r.Orders.Pool, gone...)
}
