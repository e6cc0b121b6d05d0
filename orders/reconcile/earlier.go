package reconcile

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/orders/changes"
	"example.com/orders-api/payments"
)

// objects are those that the discrepancy is about.
func (d Discrepancy) objects() []string {
	return []string{d.OrderID.String(), d.RefundID.String(), d.IntentID, d.ProviderRefundID}
}

// record stores new discrepancies, so that later runs report them, too, even if a later run does not reach
// as far back.
func (r *run) record(ctx context.Context) error {
	for page := range slices.Chunk(r.report.Discrepancies[r.recorded:], 100) {
		batch := &pgx.Batch{}
		for i := range page {
			page[i].ID = jobs.Report(batch, page[i].AccountID, string(page[i].Kind), page[i], page[i].objects()...)
		}
		if err := r.Orders.Pool.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("record discrepancies: %w", postgres.Translate(err))
		}
	}
	r.recorded = len(r.report.Discrepancies)
	return nil
}

// recordUnreadable stores the ids of objects that the provider returned in a form that this program does not
// understand. They may be anybody's, and hide no other object.
func (r *run) recordUnreadable(ctx context.Context, err error) error {
	batch := &pgx.Batch{}
	for _, id := range payments.UnreadableIDs(err) {
		jobs.Report(batch, uuid.Nil, "object_unreadable", map[string]string{"object_id": id}, id)
	}
	if err := r.Orders.Pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("record an unreadable object: %w", postgres.Translate(err))
	}
	return nil
}

// discrepancy is one that is stored and open.
type discrepancy struct {
	jobs.Job
	args struct {
		Discrepancy // with a kind only if a comparison found it

		ReadAt time.Time `json:"read_at"` // when a job read the order's refunds and disputes
	}
}

// needsRead reports whether only another job can tell that it is gone.
func (d discrepancy) needsRead() bool {
	return d.args.Kind == "" && (d.LastError == changes.MissingAtProvider || d.LastError == changes.OrphanedRecord)
}

func (r *run) open(ctx context.Context) (open []discrepancy, err error) {
	all, err := jobs.Open(ctx, r.Orders.Pool)
	for _, j := range all {
		d := discrepancy{Job: j}
		if err := json.Unmarshal(j.Args, &d.args); err != nil {
			return nil, fmt.Errorf("read discrepancy %s: %w", j.ID, err)
		}
		open = append(open, d)
	}
	return open, err
}

// compareEarlier compares again what this run has not listed.
func (r *run) compareEarlier(ctx context.Context) error {
	open, err := r.open(ctx)
	for _, earlier := range open {
		d := earlier.args.Discrepancy
		same := func(listed Discrepancy) bool {
			return listed.IDs == d.IDs && slices.Equal(listed.objects(), d.objects())
		}
		var err error
		switch {
		case earlier.needsRead():
			r.doubtful = append(r.doubtful, jobID{earlier.AccountID, d.OrderID})
		case d.Kind == "" || slices.ContainsFunc(r.report.Discrepancies, same):
		case d.ProviderRefundID != "":
			err = r.compareRefundAgain(ctx, d)
		default:
			err = r.compareIntentAgain(ctx, d)
		}
		if err != nil {
			return err
		}
	}
	return err
}

func (r *run) compareIntentAgain(ctx context.Context, d Discrepancy) error {
	o, p, err := r.readBoth(ctx, d)
	if err == nil && (p.status == unreadable || r.isRecent(o, p)) {
		r.report.Discrepancies = append(r.report.Discrepancies, d)
	} else if err == nil {
		r.compare(o, p)
	}
	return err
}

func (r *run) compareRefundAgain(ctx context.Context, d Discrepancy) error {
	made, err := r.Orders.Payments.GetRefund(ctx, d.ProviderRefundID)
	switch status := statusOf(err, d.ProviderRefundID); {
	case status == missing:
		return nil
	case status == unreadable || err == nil && r.recent(&made.Created):
		r.report.Discrepancies = append(r.report.Discrepancies, d)
		return r.recordUnreadable(ctx, err)
	case err != nil:
		return fmt.Errorf("get %s: %w", d.ProviderRefundID, err)
	}
	return r.compareRefunds(ctx, []payments.Refund{made})
}

// settle deletes what was fixed or does not differ any more. The report keeps what is open, with what other packages
// have found, and omits what an operator has acknowledged.
func (r *run) settle(ctx context.Context) error {
	open, err := r.open(ctx)
	if err != nil {
		return err
	}
	reported := map[uuid.UUID]*Discrepancy{}
	for i := range r.report.Discrepancies {
		reported[r.report.Discrepancies[i].ID] = &r.report.Discrepancies[i]
	}
	var others []Discrepancy
	var gone []uuid.UUID
	for _, o := range open {
		d := reported[o.ID]
		again := r.Fix && r.unread[o.args.OrderID] == "" && o.args.ReadAt.Before(r.began) // and not found
		switch {
		case d != nil && !d.Fixed:
			d.FoundAt = &o.CreatedAt
		case d != nil, o.args.Kind != "" && o.CreatedAt.Before(r.began), o.needsRead() && again: // not of a concurrent run
			gone = append(gone, o.ID)
		case o.args.Kind == "":
			others = append(others, Discrepancy{ID: o.ID, Kind: Kind(o.LastError), IDs: IDs{AccountID: o.AccountID}, FoundAt: &o.CreatedAt, Data: o.Args})
		}
	}
	ours := slices.DeleteFunc(r.report.Discrepancies, func(d Discrepancy) bool { return d.FoundAt == nil && !d.Fixed })
	slices.SortStableFunc(ours, func(a, b Discrepancy) int { return slices.Index(bySeverity, a.Kind) - slices.Index(bySeverity, b.Kind) })
	r.report.Discrepancies = append(ours, others...)
	return jobs.Resolve(ctx, r.Orders.Pool, gone...)
}
