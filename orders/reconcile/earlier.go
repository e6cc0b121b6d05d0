package reconcile

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/payments"
)

// record stores discrepancies, so that later runs report them, too, even if a later run does not reach
// as far back.
func (r *run) record(ctx context.Context, found []Discrepancy) error {
	for page := range slices.Chunk(found, 100) {
		batch := &pgx.Batch{}
		for i := range page {
			d := &page[i]
			d.ID = jobs.Report(batch, d.AccountID, string(d.Kind), *d, d.OrderID.String(), d.RefundID.String(), d.IntentID, d.ProviderRefundID)
		}
		if err := r.Orders.Pool.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("record discrepancies: %w", postgres.Translate(err))
		}
	}
	return nil
}

// recordUnreadable stores the ids of objects that the provider returned in a form that this program does not
// understand. They may be anybody's, and hide no other object.
func (r *run) recordUnreadable(ctx context.Context, ids []string) error {
	for _, id := range ids {
		batch := &pgx.Batch{}
		jobs.Report(batch, uuid.Nil, "object_unreadable", map[string]string{"object_id": id}, id)
		if err := r.Orders.Pool.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("record an unreadable object: %w", postgres.Translate(err))
		}
	}
	return nil
}

// compareEarlier compares again what earlier runs found and this one has not listed.
func (r *run) compareEarlier(ctx context.Context, intents *comparison[payments.Intent], refunds *comparison[payments.Refund]) (err error) {
	if r.earlier, err = jobs.Open(ctx, r.Orders.Pool); err != nil {
		return err
	}
	for _, f := range r.earlier {
		var d Discrepancy
		if !compared(f) {
			continue
		}
		if err := json.Unmarshal(f.Args, &d); err != nil {
			return fmt.Errorf("read discrepancy %s: %w", f.ID, err)
		}
		switch {
		case slices.ContainsFunc(r.report.Discrepancies, d.hasObjects):
		case d.isRefund():
			err = refunds.compareAgain(ctx, d, d.ProviderRefundID)
		default:
			err = intents.compareAgain(ctx, d, d.IntentID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *comparison[P]) compareAgain(ctx context.Context, d Discrepancy, providerID string) error {
	l, p, err := c.readBoth(ctx, d.ids(), providerID)
	if err == nil && (c.isRecent(l, p) || p.status == unreadable) {
		c.report.Discrepancies = append(c.report.Discrepancies, d)
		return nil
	}
	if err == nil {
		err = c.compare(ctx, l, p)
	}
	return err
}

// settle deletes what was fixed or does not differ any more. The report keeps what is open, with what other packages
// have found, and omits what an operator has acknowledged.
func (r *run) settle(ctx context.Context) error {
	open, err := jobs.Open(ctx, r.Orders.Pool)
	if err != nil {
		return err
	}
	reported := map[uuid.UUID]*Discrepancy{}
	for i := range r.report.Discrepancies {
		reported[r.report.Discrepancies[i].ID] = &r.report.Discrepancies[i]
	}
	var others []Discrepancy
	var gone []uuid.UUID
	for _, f := range open {
		d := reported[f.ID]
		switch {
		case d != nil && !d.Fixed:
			d.FoundAt = &f.CreatedAt
		case !compared(f):
			others = append(others, Discrepancy{ID: f.ID, Kind: Kind(f.LastError), AccountID: f.AccountID, FoundAt: &f.CreatedAt, Data: f.Args})
		case d != nil, slices.ContainsFunc(r.earlier, func(e jobs.Job) bool { return e.ID == f.ID }): // not of a concurrent run
			gone = append(gone, f.ID)
		}
	}
	ours := slices.DeleteFunc(r.report.Discrepancies, func(d Discrepancy) bool { return d.FoundAt == nil && !d.Fixed })
	r.report.Discrepancies = append(ours, others...)
	return jobs.Resolve(ctx, r.Orders.Pool, gone...)
}

// compared reports whether it is a difference of this package's comparisons.
func compared(f jobs.Job) bool { return slices.Contains(bySeverity, Kind(f.LastError)) }

// isRefund reports whether the discrepancy is about a refund instead of a payment.
func (d Discrepancy) isRefund() bool { return d.RefundID != uuid.Nil || d.ProviderRefundID != "" }

func (d Discrepancy) ids() metadataIDs {
	if d.isRefund() {
		return metadataIDs{d.AccountID, d.RefundID, d.OrderID, d.KeyID}
	}
	return metadataIDs{d.AccountID, d.OrderID, d.OrderID, d.KeyID}
}

func (d Discrepancy) hasObjects(other Discrepancy) bool {
	return d.ids() == other.ids() && d.IntentID == other.IntentID && d.ProviderRefundID == other.ProviderRefundID
}
