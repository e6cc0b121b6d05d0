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

// settle deletes what was fixed or does not differ any more. The report keeps what is open, with the findings of
// other checks, and not what an operator has acknowledged.
func (r *run) settle(ctx context.Context) error {
	reported := map[uuid.UUID]Discrepancy{}
	var gone []uuid.UUID
	for _, d := range r.report.Discrepancies {
		reported[d.ID] = d
		if d.Fixed {
			gone = append(gone, d.ID)
		}
	}
	for _, f := range r.earlier {
		if _, found := reported[f.ID]; !found && compared(f) {
			gone = append(gone, f.ID)
		}
	}
	if err := jobs.Resolve(ctx, r.Orders.Pool, gone...); err != nil {
		return err
	}
	open, err := jobs.Open(ctx, r.Orders.Pool)
	foundAt := map[uuid.UUID]*time.Time{}
	for _, f := range open {
		foundAt[f.ID] = &f.CreatedAt
		if !compared(f) {
			r.report.Discrepancies = append(r.report.Discrepancies,
				Discrepancy{ID: f.ID, Kind: Kind(f.LastError), AccountID: f.AccountID, Data: f.Args})
		}
	}
	r.report.Discrepancies = slices.DeleteFunc(r.report.Discrepancies, func(d Discrepancy) bool { return foundAt[d.ID] == nil && !d.Fixed })
	for i := range r.report.Discrepancies {
		r.report.Discrepancies[i].FoundAt = foundAt[r.report.Discrepancies[i].ID]
	}
	return err
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
