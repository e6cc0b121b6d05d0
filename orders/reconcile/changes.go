package reconcile

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
)

// compareRefunds stages the job of each order whose listed refunds differ from our records. Sync then decides.
func (r *run) compareRefunds(ctx context.Context, page []payments.Refund) error {
	r.report.Refunds += len(page)
	for _, made := range page {
		r.listedRefunds = append(r.listedRefunds, made.ID)
	}
	page = slices.DeleteFunc(page, func(made payments.Refund) bool { return made.IntentID == "" || r.recent(made.Created) })
	var ids, intentIDs, statuses, currencies []string
	var amounts []int64
	for _, made := range page {
		if !made.Status.Known() {
			made.Status = payments.RefundPending // as it is recorded
		}
		ids, intentIDs, statuses = append(ids, made.ID), append(intentIDs, made.IntentID), append(statuses, string(made.Status))
		amounts, currencies = append(amounts, made.Amount), append(currencies, made.Currency)
	}
	type order struct {
		N int // of the listed refund, from 1
		orderID
	}
	found, err := postgres.Collect(ctx, r.Orders.Pool, "compare refunds", pgx.RowToStructByPos[order], `
SELECT n,
       coalesce(o.account_id, '00000000-0000-0000-0000-000000000000'),
       coalesce(o.id, '00000000-0000-0000-0000-000000000000')
  FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[]) WITH ORDINALITY
       AS listed (id, intent_id, status, amount, currency, n)
  LEFT JOIN orders AS o
    ON o.payment_intent_id = listed.intent_id
  LEFT JOIN refunds AS r
    ON r.account_id = o.account_id
   AND r.order_id = o.id
   AND r.provider_refund_id = listed.id
 WHERE (r.status, r.amount, r.currency) IS DISTINCT FROM (listed.status, listed.amount, listed.currency)`,
		ids, intentIDs, statuses, amounts, currencies)
	for _, o := range found {
		if o.ID != uuid.Nil {
			orders.StageChange(r.batch, o.AccountID, o.ID)
		} else if err := r.compareUnknown(ctx, page[o.N-1]); err != nil {
			return err
		}
	}
	return err
}

// compareUnknown is for a refund of a payment that no order records, which may be another program's.
func (r *run) compareUnknown(ctx context.Context, made payments.Refund) error {
	if made.Status.Void() {
		return nil
	}
	paid, err := r.read(ctx, made.IntentID)
	if err != nil || r.foreign(paid.IDs) {
		return err
	}
	d := Discrepancy{
		Kind: UnrecordedRefund, IDs: paid.IDs, RefundID: payments.ParseMetadata(made.Metadata).RefundID, IntentID: made.IntentID,
		ProviderRefundID: made.ID, Provider: Money{made.Amount, made.Currency}, Created: made.Created,
		Detail: fmt.Sprintf("refund %s, payment not recorded", made.Status),
	}
	if !r.hasAccount(d.AccountID) {
		d.Detail += ", " + unknownAccount
	}
	r.add(d)
	return nil
}

func (r *run) compareDisputes(ctx context.Context, page []payments.Dispute) error {
	var intentIDs []string
	for _, d := range page {
		intentIDs = append(intentIDs, d.IntentID)
	}
	differ, err := postgres.Collect(ctx, r.Orders.Pool, "compare disputes", pgx.RowToStructByPos[orderID], `
SELECT account_id, id
  FROM unnest($1::text[], $2::jsonb[]) AS listed (intent_id, dispute)
  JOIN orders
    ON payment_intent_id = intent_id
   AND NOT coalesce(disputes, '[]') @> jsonb_build_array(dispute)`, intentIDs, page)
	for _, o := range differ {
		orders.StageChange(r.batch, o.AccountID, o.ID)
	}
	return err
}

// stageReads stages the jobs of the orders that may differ: a refund of ours was not listed, or it or a dispute is not
// final.
func (r *run) stageReads(ctx context.Context) error {
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
       )`, r.accounts, r.report.Since, r.report.Until, r.listedRefunds)
	for _, o := range doubtful {
		r.stageRead(o)
	}
	return err
}

// stageRead stages the job of an order. One that has failed waits for an operator, and stays as it is.
func (r *run) stageRead(o orderID) {
	jobs.StageTx(r.batch, o.AccountID, o.ID, orders.ChangeJob, map[string]uuid.UUID{"order_id": o.ID})
}
