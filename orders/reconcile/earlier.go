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
	"example.com/orders-api/operations/findings"
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
			page[i].ID = findings.Queue(batch, page[i].AccountID, string(page[i].Kind), page[i], page[i].objects()...)
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
		findings.Queue(batch, uuid.Nil, "object_unreadable", map[string]string{"object_id": id}, id)
	}
	if err := r.Orders.Pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("record an unreadable object: %w", postgres.Translate(err))
	}
	return nil
}

// finding is an open discrepancy, also of another command.
type finding struct {
	findings.Finding
	data struct {
		Discrepancy // with a kind only if a comparison found it

		ReadAt time.Time `json:"read_at"` // when a job read the order's refunds and disputes
	}
}

// needsRead reports whether only another job can tell that it is gone.
func (f finding) needsRead() bool {
	return f.data.Kind == "" && (f.Kind == changes.MissingAtProvider || f.Kind == changes.OrphanedRecord)
}

func (r *run) open(ctx context.Context) (open []finding, err error) {
	all, err := findings.Open(ctx, r.Orders.Pool)
	for _, found := range all {
		f := finding{Finding: found}
		if err := json.Unmarshal(f.Data, &f.data); err != nil {
			return nil, fmt.Errorf("read discrepancy %s: %w", f.ID, err)
		}
		open = append(open, f)
	}
	return open, err
}

// compareEarlier compares again what this run has not listed.
func (r *run) compareEarlier(ctx context.Context) error {
	open, err := r.open(ctx)
	for _, f := range open {
		d := f.data.Discrepancy
		same := func(listed Discrepancy) bool {
			return listed.IDs == d.IDs && slices.Equal(listed.objects(), d.objects())
		}
		var err error
		switch {
		case f.needsRead():
			r.doubtful = append(r.doubtful, jobID{f.AccountID, d.OrderID})
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
	made, err := r.Orders.Calls.Payments.GetRefund(ctx, d.ProviderRefundID)
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

// settle resolves what was fixed or does not differ any more, and adds what other commands have found.
func (r *run) settle(ctx context.Context) error {
	slices.SortStableFunc(r.report.Discrepancies, func(a, b Discrepancy) int {
		return slices.Index(bySeverity, a.Kind) - slices.Index(bySeverity, b.Kind)
	})
	reported := map[uuid.UUID]*Discrepancy{}
	gone := map[uuid.UUID]uuid.UUID{}
	for i := range r.report.Discrepancies {
		d := &r.report.Discrepancies[i]
		reported[d.ID] = d
		if d.Acknowledged = !d.Fixed; d.Fixed { // unless it is open
			gone[d.ID] = d.AccountID
		}
	}
	open, err := r.open(ctx)
	for _, f := range open {
		d := reported[f.ID]
		readAgain := r.Fix && r.unread[f.data.OrderID] == "" && f.data.ReadAt.Before(r.began)
		switch {
		case d != nil:
			d.FoundAt, d.Acknowledged = &f.FoundAt, false
		case f.data.Kind != "", f.needsRead() && readAgain:
			gone[f.ID] = f.AccountID
		default:
			r.report.Discrepancies = append(r.report.Discrepancies,
				Discrepancy{ID: f.ID, Kind: Kind(f.Kind), IDs: IDs{AccountID: f.AccountID}, FoundAt: &f.FoundAt, Data: f.Data})
		}
	}
	for id, accountID := range gone {
		err = errors.Join(err, findings.Resolve(ctx, r.Orders.Pool, accountID, id))
	}
	return err
}
