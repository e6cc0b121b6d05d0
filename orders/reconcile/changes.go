package reconcile

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
)

// refund is our record of a listed refund, in an order that records its payment.
type refund struct {
	N int // of the listed refund, from 1
	orderID
	ID uuid.UUID
	Money
	Status   string
	Recorded bool // with the id of the provider's refund
}

// compareRefunds stages the job of each order whose listed refunds differ from our records, unless they were read
// since this run began, so that the list may be out of date.
func (r *run) compareRefunds(ctx context.Context, page []payments.Refund) error {
	var intentIDs, providerIDs []string
	var named []uuid.UUID
	for _, made := range page {
		intentIDs, providerIDs = append(intentIDs, made.IntentID), append(providerIDs, made.ID)
		named = append(named, payments.ParseMetadata(made.Metadata).RefundID)
	}
	r.listedRefunds, r.report.Refunds = append(r.listedRefunds, providerIDs...), r.report.Refunds+len(page)
	found, err := postgres.Collect(ctx, r.Orders.Pool, "read refunds", pgx.RowToStructByPos[refund], `
SELECT n,
       coalesce(o.account_id, '00000000-0000-0000-0000-000000000000'),
       coalesce(o.id, '00000000-0000-0000-0000-000000000000'),
       coalesce(r.id, refund_id),
       coalesce(r.amount, 0),
       coalesce(r.currency, ''),
       coalesce(r.status, 'missing'),
       coalesce(r.provider_refund_id = provider_id, false)
  FROM unnest($1::text[], $2::text[], $3::uuid[]) WITH ORDINALITY AS listed (intent_id, provider_id, refund_id, n)
  LEFT JOIN orders AS o
    ON o.payment_intent_id = intent_id
  LEFT JOIN LATERAL (
           SELECT *
             FROM refunds AS r
            WHERE r.account_id = o.account_id
              AND r.order_id = o.id
              AND (r.provider_refund_id = provider_id OR r.id = refund_id)
            ORDER BY r.provider_refund_id = provider_id DESC NULLS LAST
            LIMIT 1
       ) AS r
    ON true
 WHERE (o.provider_read_at BETWEEN $4 AND now() + interval '1 minute') IS NOT TRUE`, intentIDs, providerIDs, named, r.began)
	for _, ours := range found {
		if err := r.compareRefund(ctx, ours, page[ours.N-1]); err != nil {
			return err
		}
	}
	return err
}

func (r *run) compareRefund(ctx context.Context, ours refund, made payments.Refund) error {
	if r.recent(made.Created) {
		return nil
	}
	if !made.Status.Known() {
		made.Status = payments.RefundPending // as it is recorded
	}
	d := Discrepancy{
		Kind: UnrecordedRefund, IDs: IDs{AccountID: ours.AccountID, OrderID: ours.orderID.ID}, RefundID: ours.ID, IntentID: made.IntentID,
		ProviderRefundID: made.ID, Local: ours.Money, Provider: Money{made.Amount, made.Currency}, Created: made.Created,
		Detail: fmt.Sprintf("refund %s, our refund %s", made.Status, ours.Status),
	}
	switch {
	case d.OrderID == uuid.Nil:
		return r.compareUnknown(ctx, d, made)
	case ours.Recorded && d.Local != d.Provider:
		d.Kind = AmountMismatch
	case ours.Recorded && ours.Status == string(made.Status):
		return nil
	case ours.Recorded:
		d.Kind = RefundStatusChanged
	}
	r.report.Discrepancies = append(r.report.Discrepancies, d) // not stored, because the job is
	r.stageRead(ours.orderID)
	return nil
}

// compareUnknown is for a refund of a payment that no order records, which may be another program's.
func (r *run) compareUnknown(ctx context.Context, d Discrepancy, made payments.Refund) error {
	if made.IntentID == "" || made.Status.Void() {
		return nil
	}
	paid, err := r.read(ctx, made.IntentID)
	if err != nil || paid.AccountID == uuid.Nil || !r.LostRows && !r.hasAccount(paid.AccountID) {
		return err
	}
	d.IDs = paid.IDs
	d.Detail += ", payment not recorded"
	if !r.hasAccount(paid.AccountID) {
		d.Detail += ", unknown account"
	}
	r.add(d)
	return nil
}

// compareRefundAgain compares a refund of a payment that no order has recorded, and that was not listed.
func (r *run) compareRefundAgain(ctx context.Context, d Discrepancy) error {
	made, err := r.Orders.Payments.GetRefund(ctx, d.ProviderRefundID)
	switch status := statusOf(err, d.ProviderRefundID); {
	case status == missing:
		return nil
	case status == unreadable || err == nil && r.recent(made.Created):
		r.reportUnreadable(err)
		r.add(d)
		return nil
	case err != nil:
		return fmt.Errorf("get %s: %w", d.ProviderRefundID, err)
	}
	return r.compareRefunds(ctx, []payments.Refund{made})
}

func (r *run) compareDisputes(ctx context.Context, page []payments.ListedDispute) error {
	var intentIDs []string
	var disputes []payments.Dispute
	for _, d := range page {
		intentIDs, disputes = append(intentIDs, d.IntentID), append(disputes, d.Dispute)
	}
	differ, err := postgres.Collect(ctx, r.Orders.Pool, "compare disputes", pgx.RowToStructByPos[orderID], `
SELECT account_id, id
  FROM unnest($1::text[], $2::jsonb[]) AS listed (intent_id, dispute)
  JOIN orders
    ON payment_intent_id = intent_id
   AND NOT coalesce(disputes, '[]') @> jsonb_build_array(dispute)`, intentIDs, disputes)
	for _, o := range differ {
		r.stageRead(o)
	}
	return err
}

// stageRead stages the job of an order that differs. A job that exists is due again.
func (r *run) stageRead(o orderID) {
	orders.StageChange(r.batch, o.AccountID, o.ID)
	r.toRead = append(r.toRead, o)
}

// stageReads stages the jobs of the orders that may differ: a refund of ours was not listed, or it or a dispute is not
// final, or an earlier read has not found our refund. A job that waits for its next attempt, or for an operator, stays
// as it is.
func (r *run) stageReads(ctx context.Context) error {
	accountIDs, orderIDs := split(r.toRead)
	doubtful, err := postgres.Collect(ctx, r.Orders.Pool, "read orders", pgx.RowToStructByPos[orderID], `
SELECT account_id, order_id
  FROM refunds
 WHERE account_id = ANY($1)
   AND created_at BETWEEN $2 AND $3
   AND provider_refund_id <> ALL($4)
   AND status NOT IN ('failed', 'canceled')
 UNION
SELECT account_id, order_id
  FROM refunds
 WHERE status IN ('pending', 'requires_action')
   AND created_at <= $3
 UNION
SELECT account_id, id
  FROM orders
 WHERE disputes IS NOT NULL -- for its index
   AND EXISTS (
           SELECT
             FROM jsonb_array_elements(disputes) AS d
            WHERE d->>'status' NOT IN ('won', 'lost', 'warning_closed', 'prevented')
       )
 UNION
SELECT account_id, id
  FROM orders
  JOIN unnest($5::uuid[], $6::uuid[]) AS earlier (account_id, id)
 USING (account_id, id)`, r.accounts, r.report.Since, r.report.Until, r.listedRefunds, accountIDs, orderIDs)
	for _, o := range doubtful {
		jobs.StageTx(r.batch, o.AccountID, o.ID, orders.ChangeJob, map[string]uuid.UUID{"order_id": o.ID})
	}
	r.toRead = doubtful
	return err
}

func split(orders []orderID) (accountIDs, ids []uuid.UUID) {
	for _, o := range orders {
		accountIDs, ids = append(accountIDs, o.AccountID), append(ids, o.ID)
	}
	return accountIDs, ids
}

// readAgain works off the jobs that were staged (R27, the provider's events).
func (r *run) readAgain(ctx context.Context) error {
	accountIDs, orderIDs := split(r.toRead)
	left, err := r.Worker().Drain(ctx, accountIDs, orderIDs)
	if err != nil {
		return fmt.Errorf("read refunds and disputes: %w", err)
	}
	for _, j := range left {
		r.unread[j.ID] = j.LastError
	}
	for i := range r.report.Discrepancies {
		if d := &r.report.Discrepancies[i]; d.ID == uuid.Nil {
			d.FixError = r.unread[d.OrderID]
			d.Fixed = d.FixError == ""
		}
	}
	return nil
}

// absent reports whether what Sync has found is gone, because it has read the order again, and not found it.
func (r *run) absent(d Discrepancy) bool {
	return r.Fix && !d.compared() && (d.Kind == MissingAtProvider || d.Kind == OrphanedRecord) && r.unread[d.OrderID] == "" && d.ReadAt.Before(r.began)
}
