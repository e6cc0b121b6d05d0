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

// Only a job of its order reads refunds and disputes to record them (R27, the provider's events). What is listed
// here decides which orders need that.

// refund is our record of a listed refund, in an order that records its payment.
type refund struct {
	N int // of the listed refund, from 1
	IDs
	Newer bool // the order's refunds were read since this run began, so the list may be out of date
	ID    uuid.UUID
	Money
	Status     string
	ProviderID string // "" if the provider has not confirmed it
	Unfinished bool   // its key
}

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
       '00000000-0000-0000-0000-000000000000'::uuid,
       coalesce(o.provider_read_at BETWEEN $4 AND now() + interval '1 minute', false),
       coalesce(r.id, refund_id),
       coalesce(r.amount, 0),
       coalesce(r.currency, ''),
       coalesce(r.status, 'missing'),
       coalesce(r.provider_refund_id, ''),
       coalesce(r.unfinished, false)
  FROM unnest($1::text[], $2::text[], $3::uuid[]) WITH ORDINALITY AS listed (intent_id, provider_id, refund_id, n)
  LEFT JOIN orders AS o
    ON o.payment_intent_id = intent_id
  LEFT JOIN LATERAL (
           SELECT *, EXISTS (`+unfinishedKey+`) AS unfinished
             FROM refunds AS r
            WHERE r.account_id = o.account_id
              AND r.order_id = o.id
              AND (r.provider_refund_id = provider_id OR r.id = refund_id)
            ORDER BY r.provider_refund_id = provider_id DESC NULLS LAST
            LIMIT 1
       ) AS r
    ON true`, intentIDs, providerIDs, named, r.began)
	for _, ours := range found {
		if err := r.compareRefund(ctx, ours, page[ours.N-1]); err != nil {
			return err
		}
	}
	return err
}

func (r *run) compareRefund(ctx context.Context, ours refund, made payments.Refund) (err error) {
	d := Discrepancy{
		IDs: ours.IDs, RefundID: ours.ID, IntentID: made.IntentID, ProviderRefundID: made.ID, Local: ours.Money,
		Provider: Money{made.Amount, made.Currency}, Created: made.Created, staged: ours.OrderID != uuid.Nil,
	}
	if !made.Status.Known() {
		made.Status = payments.RefundPending // as it is recorded
	}
	d.Detail = fmt.Sprintf("refund %s, our refund %s", made.Status, ours.Status)
	recorded := ours.ProviderID == made.ID
	awaited := ours.Unfinished && ours.ProviderID == "" // the key's next run records it
	switch {
	case r.recent(&made.Created):
		return nil
	case !d.staged:
		d.Kind, err = r.compareUnknown(ctx, made, &d)
	case ours.Newer:
	case (recorded || awaited) && d.Local != d.Provider:
		d.Kind = AmountMismatch
	case awaited, recorded && ours.Status == string(made.Status):
	case recorded:
		d.Kind = RefundStatusChanged
	default:
		d.Kind = UnrecordedRefund
	}
	if d.Kind != "" {
		r.report.Discrepancies = append(r.report.Discrepancies, d)
	}
	if d.Kind != "" && d.staged {
		r.differ = append(r.differ, jobID{d.AccountID, d.OrderID})
	}
	return err
}

// compareUnknown is for a refund of a payment that no order records, which may be another program's.
func (r *run) compareUnknown(ctx context.Context, made payments.Refund, d *Discrepancy) (Kind, error) {
	if made.IntentID == "" || made.Status.Void() {
		return "", nil
	}
	paid, err := r.read(ctx, made.IntentID)
	if err != nil || paid.AccountID == uuid.Nil {
		return "", err
	}
	d.IDs = paid.IDs
	d.Detail += ", payment not recorded"
	if !r.hasAccount(paid.AccountID) {
		d.Detail += ", unknown account"
		if !r.LostRows {
			return "", nil
		}
	}
	return UnrecordedRefund, nil
}

func (r *run) compareDisputes(ctx context.Context, page []payments.ListedDispute) error {
	var intentIDs []string
	var disputes []payments.Dispute
	for _, d := range page {
		intentIDs, disputes = append(intentIDs, d.IntentID), append(disputes, d.Dispute)
	}
	differ, err := postgres.Collect(ctx, r.Orders.Pool, "compare disputes", pgx.RowToStructByPos[jobID], `
SELECT account_id, id
  FROM unnest($1::text[], $2::jsonb[]) AS listed (intent_id, dispute)
  JOIN orders
    ON payment_intent_id = intent_id
   AND NOT coalesce(disputes, '[]') @> jsonb_build_array(dispute)`, intentIDs, disputes)
	r.differ = append(r.differ, differ...)
	return err
}

const unfinishedKey = `
                      SELECT
                        FROM idempotency_keys AS k
                       WHERE k.account_id = r.account_id
                         AND k.idempotency_key = r.idempotency_key
                         AND k.finished_at IS NULL`

type jobID struct{ AccountID, OrderID uuid.UUID }

// readAgain stages the jobs of the orders that differ, and of those that may: a refund of ours was not listed, or it
// or a dispute is not final, or an earlier read has not found our refund. It works these jobs off (R27, the
// provider's events).
func (r *run) readAgain(ctx context.Context) error {
	var accountIDs, orderIDs []uuid.UUID
	for _, o := range r.doubtful {
		accountIDs, orderIDs = append(accountIDs, o.AccountID), append(orderIDs, o.OrderID)
	}
	doubtful, err := postgres.Collect(ctx, r.Orders.Pool, "read orders", pgx.RowToStructByPos[jobID], `
SELECT account_id, order_id
  FROM refunds
 WHERE account_id = ANY($1)
   AND created_at BETWEEN $2 AND $3
   AND provider_refund_id <> ALL($4)
   AND status NOT IN ('failed', 'canceled')
 UNION
SELECT account_id, order_id
  FROM refunds AS r
 WHERE status IN ('pending', 'requires_action')
   AND created_at <= $3
   AND NOT EXISTS (`+unfinishedKey+`)
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
  JOIN unnest($5::uuid[], $6::uuid[]) AS doubtful (account_id, id)
 USING (account_id, id)`, r.accounts, r.report.Since, r.report.Until, r.listedRefunds, accountIDs, orderIDs)
	if err != nil {
		return err
	}
	accountIDs, orderIDs = nil, nil
	batch := &pgx.Batch{}
	for _, o := range doubtful {
		accountIDs, orderIDs = append(accountIDs, o.AccountID), append(orderIDs, o.OrderID)
		// A job that waits for its next attempt, or for an operator, stays as it is.
		jobs.StageTx(batch, o.AccountID, o.OrderID, orders.ChangeJob, map[string]uuid.UUID{"order_id": o.OrderID})
	}
	for _, o := range r.differ {
		accountIDs, orderIDs = append(accountIDs, o.AccountID), append(orderIDs, o.OrderID)
		orders.StageChange(batch, o.AccountID, o.OrderID)
	}
	if err := r.Orders.Pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("stage reads: %w", postgres.Translate(err))
	}
	left, err := r.Changes.Worker().Drain(ctx, accountIDs, orderIDs)
	if err != nil {
		return fmt.Errorf("read refunds and disputes: %w", err)
	}
	for _, j := range left {
		r.unread[j.ID] = j.LastError
	}
	for i := range r.report.Discrepancies {
		if d := &r.report.Discrepancies[i]; d.staged {
			d.FixError = r.unread[d.OrderID]
			d.Fixed = d.FixError == ""
		}
	}
	return nil
}
