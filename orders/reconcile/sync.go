package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/events"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/audit"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
)

// Service takes the provider's events, and records what they are about. It is safe for concurrent use, also by
// several processes.
type Service struct {
	Orders  *orders.Service
	Timeout time.Duration // of an order: a run of its key, and the calls of a step
}

// Worker returns the worker of the jobs [orders.ChangeJob], each of which calls Sync for its order.
func (s *Service) Worker() *jobs.Worker {
	return &jobs.Worker{
		Pool:        s.Orders.Pool,
		Logger:      s.Orders.Logger,
		Kind:        orders.ChangeJob,
		Do:          s.work,
		Timeout:     s.Timeout,
		Concurrency: 4,
		Detail:      error.Error,
	}
}

func (s *Service) work(ctx context.Context, j jobs.Job) error {
	err := s.Sync(ctx, j.AccountID, j.ID)
	if failed, ok := errors.AsType[*payments.Error](err); ok && failed.KeyRejected() {
		err = fmt.Errorf("%w: %w", jobs.ErrMisconfigured, err)
	}
	return err
}

// Sync reads the refunds and disputes of an order from the provider, and records them in one transaction.
// What the provider states is recorded, whatever our records say (R27, the provider's events). An error
// means that something is left to another read. So a job is repeated even if a read that began later is
// recorded, because that one may have read less.
func (s *Service) Sync(ctx context.Context, accountID, orderID uuid.UUID) error {
	o, err := s.find(ctx, accountID, orderID)
	if err == nil && o.Status.Open() {
		if _, err = s.Orders.Engine.Resume(ctx, accountID, idempotency.KeyID(accountID, o.IdempotencyKey)); err == nil {
			o, err = s.find(ctx, accountID, orderID)
		}
	}
	if err == nil && o.PaymentIntentID == "" {
		err = errors.New("the order records no payment")
	}
	if err != nil {
		return err
	}
	reading, cancel := s.Orders.Payments.StepContext(ctx)
	defer cancel()
	// An object that cannot be read is left to a later attempt, and hides no other one.
	listed, unlisted := s.Orders.Payments.ListRefunds(reading, o.PaymentIntentID)
	if unlisted != nil && payments.UnreadableIDs(unlisted) == nil {
		return fmt.Errorf("list the refunds of %s: %w", o.PaymentIntentID, unlisted)
	}
	// If two have the id of one of ours, the one that is not void is ours.
	slices.SortStableFunc(listed, func(a, b payments.Refund) int { return void(a) - void(b) })
	// Without the permission to read disputes, refunds are recorded nevertheless.
	disputes, unread := s.Orders.Payments.ListDisputes(reading, o.PaymentIntentID)
	c := &change{order: o, events: s.Orders.Events}
	if len(listed) > 0 && !o.Status.Paid() { // the customer may have paid a failed order with another card
		intent, err := s.Orders.Payments.Get(reading, o.PaymentIntentID)
		if err != nil {
			return fmt.Errorf("read %s: %w", o.PaymentIntentID, err)
		}
		c.uncharged = intent.Status != payments.StatusSucceeded
	}
	err = pgx.BeginTxFunc(ctx, s.Orders.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := c.lock(ctx, tx, listed); err != nil {
			return err
		}
		for _, made := range listed {
			c.applyRefund(made)
		}
		if unlisted == nil {
			c.reportAbsent(listed)
		}
		if unread == nil || payments.UnreadableIDs(unread) != nil {
			c.applyDisputes(ctx, disputes)
		}
		c.batch.Queue("UPDATE orders SET provider_read_at = $3 WHERE account_id = $1 AND id = $2", accountID, orderID, o.ReadAt)
		QueueTotals(&c.batch, accountID, orderID)
		return tx.SendBatch(ctx, &c.batch).Close()
	})
	switch {
	case err != nil:
		return fmt.Errorf("record refunds and disputes: %w", postgres.Translate(err))
	case unlisted != nil:
		return fmt.Errorf("list the refunds of %s: %w", o.PaymentIntentID, unlisted)
	case unread != nil:
		return fmt.Errorf("list the disputes of %s: %w", o.PaymentIntentID, unread)
	case c.ambiguous != "":
		return fmt.Errorf("%s may be our refund that is in progress", c.ambiguous)
	default:
		return s.finishRuns(ctx, c)
	}
}

// finishRuns lets the runs of our refunds record them. If Sync recorded a failure that overtakes the
// response, its client would not learn that the 201 is wrong. So the job is repeated, unless a run refuses
// the provider's refund: then an operator has to decide.
func (s *Service) finishRuns(ctx context.Context, c *change) error {
	for _, u := range c.unfinished {
		_, err := s.Orders.Engine.Resume(ctx, c.AccountID, idempotency.KeyID(c.AccountID, u.UnfinishedKey))
		if failed, ok := errors.AsType[*payments.Error](err); !ok || failed.Code != orders.NotOurRefund {
			return cmp.Or(err, errors.New("the refund's own run has just recorded it"))
		}
		refused := &pgx.Batch{}
		c.report(refused, "refund_differs", u.record, u.made)
		if err := s.Orders.Pool.SendBatch(ctx, refused).Close(); err != nil {
			return fmt.Errorf("report a refund that differs: %w", postgres.Translate(err))
		}
	}
	return nil
}

type order struct {
	AccountID, ID   uuid.UUID
	IdempotencyKey  idempotency.Key
	PaymentIntentID string
	Status          orders.Status
	ReadAt          time.Time // before the provider is read
}

func (s *Service) find(ctx context.Context, accountID, id uuid.UUID) (order, error) {
	return httpjson.QueryRow(ctx, s.Orders.Pool, pgx.RowToStructByPos[order], `
SELECT account_id,
       id,
       idempotency_key,
       coalesce(payment_intent_id, ''),
       status,
       clock_timestamp()
  FROM orders
 WHERE account_id = $1
   AND id = $2`, accountID, id)
}

// change is the transaction of Sync.
type change struct {
	order
	events events.Stager
	batch  pgx.Batch

	records    []record
	disputes   []payments.Dispute // as recorded
	ambiguous  string             // a refund that is left to the next attempt, see match
	unfinished []unfinished       // refunds that are left to their own runs, see finishRuns
	uncharged  bool               // the intent of the order was never charged
}

type unfinished struct {
	record

	made payments.Refund
}

// record is a refund of the order, or one of another order whose id a listed refund names.
type record struct {
	ID         uuid.UUID
	OrderID    uuid.UUID
	ProviderID string // "" if the provider has not confirmed it
	Status     payments.RefundStatus
	Amount     int64
	Currency   string
	Source     string

	UnfinishedKey idempotency.Key // "" if its key is finished or gone
}

var errLaterRead = errors.New("a later read is recorded, which may have read less")

// lock locks the order and reads its records, in two statements, because under READ COMMITTED only the
// second one sees what the lock's previous holder has committed. A time in the future was recorded while
// the database's clock ran ahead (R8, the database's clock).
func (c *change) lock(ctx context.Context, tx pgx.Tx, listed []payments.Refund) error {
	err := tx.QueryRow(ctx, `
SELECT coalesce(disputes, '[]')
  FROM orders
 WHERE account_id = $1
   AND id = $2
   AND (provider_read_at < $3 OR provider_read_at > now() + interval '1 minute') IS NOT FALSE
   FOR NO KEY UPDATE`, c.AccountID, c.ID, c.ReadAt).Scan(&c.disputes)
	if errors.Is(err, pgx.ErrNoRows) {
		return errLaterRead
	}
	if err != nil {
		return err
	}
	for i := range c.disputes {
		c.disputes[i].IntentID = c.PaymentIntentID // as in the list
	}
	named := make([]uuid.UUID, len(listed))
	for i, made := range listed {
		named[i] = payments.ParseMetadata(made.Metadata).RefundID
	}
	rows, _ := tx.Query(ctx, `
SELECT r.id,
       r.order_id,
       coalesce(r.provider_refund_id, ''),
       r.status,
       r.amount,
       r.currency,
       r.source,
       coalesce(k.idempotency_key, '')
  FROM refunds AS r
  LEFT JOIN idempotency_keys AS k
    ON k.account_id = r.account_id
   AND k.idempotency_key = r.idempotency_key
   AND k.finished_at IS NULL
 WHERE r.account_id = $1
   AND (r.order_id = $2 OR r.id = ANY($3))`, c.AccountID, c.ID, named) // CollectRows returns its error
	c.records, err = pgx.CollectRows(rows, pgx.RowToStructByPos[record])
	return err
}

// match returns our record of a refund at the provider, or a new one. A refund without our metadata was made at the
// dashboard, or it is one of ours whose metadata was removed. So if a refund of ours with this amount is still in
// progress, match returns nil, and a later Sync decides.
func (c *change) match(made payments.Refund) *record {
	if i := slices.IndexFunc(c.records, func(r record) bool { return r.ProviderID == made.ID }); i >= 0 {
		return &c.records[i] // whatever its metadata names
	}
	ids := payments.ParseMetadata(made.Metadata)
	ours := ids.AccountID == c.AccountID && ids.OrderID == c.ID && ids.RefundID != uuid.Nil
	var named *record
	inProgress := false
	for i := range c.records {
		r := &c.records[i]
		unmade := r.OrderID == c.ID && r.ProviderID == ""
		switch {
		case ours && unmade && r.ID == ids.RefundID:
			return r
		case r.ID == ids.RefundID:
			named = r
		case unmade && !r.Status.Void() && r.Amount == made.Amount && r.Currency == made.Currency:
			inProgress = true
		}
	}
	switch {
	case ours && named == nil: // our row was lost, and a retry of its key finds the id in use
		return c.add(record{ID: ids.RefundID, Source: SourceAPI})
	case inProgress:
		return nil
	default:
		return c.add(record{ID: idempotency.DeriveID("provider_refund", c.AccountID, idempotency.Key(made.ID)), Source: SourceProvider})
	}
}

func void(made payments.Refund) int {
	if made.Status.Void() {
		return 1
	}
	return 0
}

func (c *change) add(r record) *record {
	r.OrderID = c.ID
	c.records = append(c.records, r)
	return &c.records[len(c.records)-1]
}

func (c *change) applyRefund(made payments.Refund) {
	r := c.match(made)
	switch {
	case r == nil:
		c.ambiguous = made.ID
		return
	case r.ProviderID == "" && r.UnfinishedKey != "":
		c.unfinished = append(c.unfinished, unfinished{*r, made})
		return
	case r.ProviderID == "" && c.uncharged: // an order without a charge has no refund
		c.report(&c.batch, "refund_without_charge", *r, made)
		return
	}
	if !made.Status.Known() {
		made.Status = payments.RefundPending
	}
	if r.ProviderID == made.ID && r.Status == made.Status && r.Amount == made.Amount {
		return
	}
	QueueRefund(&c.batch, Refund{AccountID: c.AccountID, ID: r.ID, OrderID: c.ID, Source: r.Source, Made: made}, true)
	event := events.ShopEvent{Type: events.RefundUpdated, OrderID: c.ID, RefundID: r.ID}
	if r.ProviderID == "" && !made.Status.Void() {
		event.Type = events.RefundCreated
	}
	c.events.StageTx(&c.batch, c.AccountID, event)
	switch {
	case made.Status.Void() && !r.Status.Void() && (r.ProviderID != "" || r.Source == SourceAPI):
		c.report(&c.batch, "refund_failed_late", *r, made)
	case r.ProviderID == "" && r.Status.Void() && !made.Status.Void():
		c.report(&c.batch, "refund_made_after_failure", *r, made)
	}
	if r.Currency != "" && (r.Amount != made.Amount || r.Currency != made.Currency) {
		c.report(&c.batch, "refund_differs", *r, made)
	}
	r.ProviderID = made.ID // no other refund is this one
}

// reportAbsent reports our refunds that a complete list does not have.
func (c *change) reportAbsent(listed []payments.Refund) {
	for _, r := range c.records {
		switch {
		case r.OrderID != c.ID || r.Status.Void() || r.Currency == "": // no row of this order, or it returns no money
		case r.ProviderID == "" && r.UnfinishedKey == "":
			c.report(&c.batch, OrphanedRecord, r, payments.Refund{})
		case r.ProviderID != "" && !slices.ContainsFunc(listed, func(made payments.Refund) bool { return made.ID == r.ProviderID }):
			c.report(&c.batch, MissingAtProvider, r, payments.Refund{ID: r.ProviderID})
		}
	}
}

func (c *change) report(tx postgres.Queuer, kind Kind, r record, made payments.Refund) {
	jobs.Report(tx, c.AccountID, string(kind), Discrepancy{
		Kind: kind, IDs: IDs{AccountID: c.AccountID, OrderID: c.ID}, RefundID: r.ID, IntentID: c.PaymentIntentID, ProviderRefundID: made.ID,
		Local: Money{r.Amount, r.Currency}, Provider: Money{made.Amount, made.Currency}, Detail: made.FailureReason, ReadAt: c.ReadAt,
	}, r.ID.String())
}

func (c *change) applyDisputes(ctx context.Context, disputes []payments.Dispute) {
	for _, recorded := range c.disputes { // also one that could not be read now
		if !slices.ContainsFunc(disputes, func(d payments.Dispute) bool { return d.ID == recorded.ID }) {
			disputes = append(disputes, recorded)
		}
	}
	for _, d := range disputes {
		if !slices.Contains(c.disputes, d) {
			audit.WriteTx(ctx, &c.batch, c.AccountID, c.ID, "order.dispute_updated", map[string]any{"dispute": d})
			c.events.StageTx(&c.batch, c.AccountID, events.ShopEvent{Type: events.DisputeUpdated, OrderID: c.ID, DisputeID: d.ID})
		}
	}
	if !slices.Equal(c.disputes, disputes) {
		c.batch.Queue("UPDATE orders SET disputes = $3 WHERE account_id = $1 AND id = $2", c.AccountID, c.ID, disputes)
	}
}

// Sources of a refund: an operation of ours, or the provider's dashboard.
const (
	SourceAPI      = "api"
	SourceProvider = "provider"
)

// Reasons are those that a client can state. The provider has others.
var Reasons = []string{"duplicate", "fraudulent", "requested_by_customer"}

// Refund is a refund of an order as the provider states it.
type Refund struct {
	AccountID, ID, OrderID uuid.UUID
	Source                 string
	Made                   payments.Refund // with a known status
}

// QueueRefund queues the statement that records a refund, and writes an audit record if it changes
// something. If the order's refunds were read later than the last time, the provider's state is recorded
// unconditionally. A response changes only a refund that is not recorded yet, because it may be older.
func QueueRefund(tx postgres.Queuer, r Refund, laterRead bool) {
	var reason, failure *string
	if slices.Contains(Reasons, r.Made.Reason) {
		reason = &r.Made.Reason
	}
	if r.Made.Status.Void() && r.Made.FailureReason != "" {
		failure = &r.Made.FailureReason
	}
	tx.Queue(`
WITH applied AS (
    INSERT INTO refunds AS r (
        account_id,
        id,
        order_id,
        amount,
        currency,
        reason,
        status,
        provider_refund_id,
        failure_reason,
        source,
        provider_sent_at,
        created_at
    ) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, NULL, $11)
        ON CONFLICT (account_id, id) DO UPDATE
       SET status             = excluded.status,
           provider_refund_id = excluded.provider_refund_id,
           amount             = excluded.amount, -- see adoptRest
           failure_reason     = excluded.failure_reason
     WHERE r.order_id = excluded.order_id
       AND (
               r.provider_refund_id IS NULL
            OR (
                   $12
               AND r.provider_refund_id = excluded.provider_refund_id
               AND (r.status, r.amount) IS DISTINCT FROM (excluded.status, excluded.amount)
            )
       )
    RETURNING account_id, id, status, provider_refund_id, amount, currency
)`+audit.Insert+`
SELECT $13,
       account_id,
       'refund.' || status,
       'refund',
       id::text,
       jsonb_build_object('provider_refund_id', provider_refund_id, 'amount', amount, 'currency', currency)
  FROM applied`, r.AccountID, r.ID, r.OrderID, r.Made.Amount, r.Made.Currency, reason, string(r.Made.Status), r.Made.ID, failure,
		r.Source, r.Made.Created, laterRead, uuid.Must(uuid.NewV7()))
}

// QueueTotals queues the UPDATE of an order's amount_refunded and status. The transaction locks the order
// first. A refund without a provider_refund_id only reserves its amount, and has returned no money.
func QueueTotals(tx postgres.Queuer, accountID, orderID uuid.UUID) {
	tx.Queue(`
UPDATE orders AS o
   SET amount_refunded = least(back.total, o.amount),
       status          = CASE
                             WHEN back.total = 0 THEN 'paid'
                             WHEN back.total >= o.amount THEN 'refunded'
                             ELSE 'partially_refunded'
                         END
  FROM (
           SELECT coalesce(sum(amount), 0)::bigint AS total
             FROM refunds
            WHERE account_id = $1
              AND order_id = $2
              AND provider_refund_id IS NOT NULL
              AND status NOT IN ('failed', 'canceled')
       ) AS back
 WHERE o.account_id = $1
   AND o.id = $2
   AND o.paid_at IS NOT NULL
   AND o.amount_refunded <> least(back.total, o.amount)`, accountID, orderID)
}

// CountUnansweredDisputes returns the number of disputes for which the provider awaits the shop's response.
func CountUnansweredDisputes(ctx context.Context, pool *pgxpool.Pool) (n int, err error) {
	err = pool.QueryRow(ctx, `
SELECT count(*)
  FROM orders, jsonb_array_elements(disputes) AS d
 WHERE disputes IS NOT NULL -- for its index
   AND d->>'status' IN ('needs_response', 'warning_needs_response')`).Scan(&n)
	if err != nil {
		err = fmt.Errorf("count disputes: %w", err)
	}
	return n, err
}
