package refunds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/events"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/audit"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/orders"
	"example.com/orders-api/orders/reconcile"
	"example.com/orders-api/payments"
)

const pointRefundCreated idempotency.RecoveryPoint = "refund_created"

type createRefund struct{ service *Service }

func (createRefund) Name() string { return Operation }

// Mark implements [idempotency.Marker]. No later run makes the refund. It adopts one that exists (R29, durable
// cancel).
func (createRefund) Mark(batch *pgx.Batch, key idempotency.StoredKey, operator string) {
	batch.Queue(`
UPDATE refunds
   SET cancel_requested_at = now(),
       cancel_requested_by = $3
 WHERE account_id = $1
   AND id = $2`, key.AccountID, refundID(key.AccountID, key.Key), operator)
}

// Links implements [httpjson.Linker].
func (createRefund) Links(key idempotency.StoredKey) httpjson.Links {
	order := httpjson.NewLink(orders.Path, httpjson.ParentID(Path, key.Path))
	return httpjson.Links{"order": order}.Created("refund", key, refundID)
}

func (op createRefund) Steps(run *idempotency.Run) idempotency.Steps {
	r := &refundRun{createRefund: op, run: run}
	return idempotency.Steps{
		Start:    r.insertRefund,
		Violated: r.violated,
		At:       map[idempotency.RecoveryPoint]idempotency.StepFunc{pointRefundCreated: r.sendRefund},
	}
}

// refundRun is one run of a refund. Its row is the state that a later run continues from: it counts every call that
// may have been executed.
type refundRun struct {
	createRefund

	run    *idempotency.Run
	refund row // see load

	announced bool       // this run has read the list, and its last commit has counted the call that follows
	earlier   *time.Time // of the last call before this run's that may have been executed
}

// insertRefund is transaction 1. It locks the order before it reads the remaining amount, so
// concurrent refunds never exceed the charge.
func (r *refundRun) insertRefund(ctx context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
	request, err := DecodeRequest(r.run.Params)
	if err != nil {
		return idempotency.Transition{}, err
	}
	orderID := httpjson.ParentID(Path, r.run.Path)
	id := refundID(r.run.AccountID, r.run.Key)
	// If a failover lost the key's rows and the provider's list brought the refund back, the INSERT meets
	// its id, and the key has expired. So the refund itself must not use up the amount before.
	order, reserved, err := lockOrderTx(ctx, tx, r.run.AccountID, orderID, id)
	if err != nil {
		return idempotency.Transition{}, err
	}
	amount, err := refundable(order, request.Amount, reserved)
	if err != nil {
		return idempotency.Transition{}, err
	}
	tx.Queue(`
INSERT INTO refunds (
    id,
    account_id,
    order_id,
    idempotency_key,
    amount,
    currency,
    reason,
    status,
    created_at
) VALUES ($1, $2, $3, $4, $5, $6, $7, 'pending', now())`,
		id, r.run.AccountID, orderID, string(r.run.Key), amount, order.Currency, request.Reason)
	audit.WriteTx(ctx, tx, r.run.AccountID, id, "refund.created", map[string]any{
		"order_id": orderID, "amount": amount, "currency": order.Currency, "reason": request.Reason,
	})
	return idempotency.Advance(pointRefundCreated), nil
}

// violated returns the error of a request whose refund exists, because the provider's list has brought it
// back, although the rows of its key were lost.
func (r *refundRun) violated(_ context.Context, constraint string) error {
	if strings.Contains(constraint, "refunds_pkey") {
		return r.run.Expired()
	}
	return nil
}

// sendRefund lists the intent's refunds before it sends one, because the provider forgets its key after a day and
// would then refund again (R12, read first). A resumed run first commits that it is about to send, so that a crash
// cannot lose the time of its call. In the first run, the INSERT has done so: the default of provider_sent_at is now().
func (r *refundRun) sendRefund(ctx context.Context) (idempotency.RecordFunc, error) {
	ctx, cancel := r.service.Orders.Payments.StepContext(ctx)
	defer cancel()
	if err := r.load(ctx); err != nil {
		return nil, err
	}
	if r.announced && !r.refund.CancelRequested {
		return r.send(ctx)
	}
	switch found, failed := r.findRefund(ctx); {
	case failed != nil:
		return nil, r.retryLater(r.kindOfFailure(), failed)
	case found.ID != "":
		return r.recordRefund(found)
	case r.providerReplaysError():
		return nil, r.retryLater(httpjson.ErrOutcomeUnknown, storedError())
	case r.refund.CancelRequested:
		return r.closeUnmade(ctx)
	case !r.run.Resumed:
		return r.send(ctx)
	}
	now := r.run.Now()
	r.earlier, r.refund.ProviderSentAt, r.announced = r.refund.ProviderSentAt, &now, true
	return r.record(idempotency.Advance(pointRefundCreated)), nil
}

func (r *refundRun) load(ctx context.Context) (err error) {
	r.refund, err = r.service.find(ctx, r.run.AccountID, refundID(r.run.AccountID, r.run.Key))
	if errors.Is(err, httpjson.ErrNotFound) {
		return fmt.Errorf("the refund of key %s is missing", r.run.KeyID)
	}
	if !r.run.Resumed {
		r.refund.ProviderSentAt = nil // no earlier call exists
	}
	return err
}

// record stores what is known about the calls to the provider.
func (r *refundRun) record(next idempotency.Transition) idempotency.RecordFunc {
	return func(_ context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
		tx.Queue(`
UPDATE refunds
   SET provider_key_number = $3,
       provider_sent_at    = $4,
       provider_failed_at  = $5
 WHERE account_id = $1
   AND id = $2`, r.run.AccountID, r.refund.ID, r.refund.KeyNumber, r.refund.ProviderSentAt, r.refund.ProviderFailedAt)
		return next, nil
	}
}

// pause records what is known about the calls, and ends the run with an error.
func (r *refundRun) pause(kind error, failed *payments.Error) (idempotency.RecordFunc, error) {
	later := r.retryLater(kind, failed)
	return r.record(idempotency.Pause(pointRefundCreated, func() error { return later })), nil
}

// kindOfFailure returns the kind of an error that occurs before this run's call, or of a call that had
// no effect. The outcome is unknown only if an earlier call may have been executed.
func (r *refundRun) kindOfFailure() error {
	if r.refund.ProviderSentAt == nil {
		return httpjson.ErrProviderUnavailable
	}
	return httpjson.ErrOutcomeUnknown
}

// recordRefund is transaction 2.
func (r *refundRun) recordRefund(made payments.Refund) (idempotency.RecordFunc, error) {
	r.adoptRest(made)
	if !r.refund.matches(made) {
		return nil, r.retryLater(httpjson.ErrOutcomeUnknown, &payments.Error{NeedsOperator: true, Code: orders.NotOurRefund})
	}
	return func(ctx context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
		// This locks the order, and a list that was requested before changes nothing any more.
		tx.Queue("UPDATE orders SET provider_read_at = now() WHERE account_id = $1 AND id = $2", r.run.AccountID, r.refund.OrderID)
		reconcile.QueueRefund(tx, reconcile.Refund{
			AccountID: r.run.AccountID, ID: r.refund.ID, OrderID: r.refund.OrderID, Source: reconcile.SourceAPI, Made: made,
		}, false)
		reconcile.QueueTotals(tx, r.run.AccountID, r.refund.OrderID)
		r.stageTx(tx, !made.Status.Void())
		if made.Status.Void() {
			code := cmp.Or(made.FailureReason, "refund_"+string(made.Status))
			return orders.Refused(code, "The payment provider could not give the money back.").Finish(r.refund.OrderID)
		}
		refunded := r.refund.Refund
		refunded.Status, refunded.ProviderRefundID = made.Status, &made.ID
		return httpjson.FinishCreated(r.run.Path+"/"+refunded.ID.String(), refunded)
	}, nil
}

// adoptRest corrects the amount of a refund whose request omits it, so that the rest of the order is refunded. If the
// rows of this refund and of an earlier one were lost, the rest was computed again without the earlier one, so it is
// more than what the first run has sent. The provider's amount is right.
func (r *refundRun) adoptRest(made payments.Refund) {
	request, err := DecodeRequest(r.run.Params)
	if err == nil && request.Amount == 0 && made.Amount < r.refund.Amount {
		r.refund.Amount = made.Amount
	}
}

// recordFailure returns transaction 2 of a refund that the provider does not have. The transaction
// fails if an event has recorded the refund in the meantime. It does not lock the order, because it
// changes no sum: at worst, a concurrent refund still counts this one's amount as reserved.
func (r *refundRun) recordFailure(why orders.Problem) idempotency.RecordFunc {
	return func(ctx context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
		err := tx.QueryRow(ctx, `
UPDATE refunds
   SET status         = 'failed',
       failure_reason = $3
 WHERE account_id = $1
   AND id = $2
   AND provider_refund_id IS NULL
RETURNING id`, []any{r.run.AccountID, r.refund.ID, why.Code}, new(uuid.UUID))
		if err != nil {
			return idempotency.Transition{}, fmt.Errorf("record the failure of refund %s, which may be at the provider: %w", r.refund.ID, err)
		}
		r.stageTx(tx, false)
		if why.Code == "charge_disputed" { // our records lack the dispute, or it has changed
			orders.StageChange(tx, r.run.AccountID, r.refund.OrderID)
		}
		audit.WriteTx(ctx, tx, r.run.AccountID, r.refund.ID, "refund.failed", map[string]any{"code": why.Code})
		return why.Finish(r.refund.OrderID)
	}
}

// stageTx stages the event of a refund that was made, or of one that failed.
func (r *refundRun) stageTx(tx *idempotency.Tx, made bool) {
	event := events.ShopEvent{Type: events.RefundUpdated, OrderID: r.refund.OrderID, RefundID: r.refund.ID}
	if made {
		event.Type = events.RefundCreated
	}
	r.service.Orders.Events.StageTx(tx, r.run.AccountID, event)
}

const (
	storedErrorTTL = 24 * time.Hour   // how long the provider replays a 500, and may still make the refund
	inFlightGrace  = 10 * time.Minute // how long a sent refund may take to arrive
)

// storedError waits less than storedErrorTTL, because an event may resolve the refund.
func storedError() *payments.Error {
	return &payments.Error{Code: "saved_500", RetryAfter: time.Hour}
}

func sentRecently() *payments.Error {
	return &payments.Error{Code: "sent_moments_ago", RetryAfter: inFlightGrace}
}

func (r *refundRun) providerReplaysError() bool {
	return r.refund.ProviderFailedAt != nil && r.run.Now().Sub(*r.refund.ProviderFailedAt) < storedErrorTTL
}

func (r *refundRun) send(ctx context.Context) (idempotency.RecordFunc, error) {
	sentAt := r.run.Now()
	sending, cancel := payments.SendContext(ctx)
	defer cancel()
	params := payments.RefundParams{
		IntentID: r.refund.IntentID,
		Amount:   r.refund.Amount,
		Currency: r.refund.Currency,
		Reason:   r.refund.Reason,
		Metadata: payments.Metadata{
			AccountID: r.run.AccountID, OrderID: r.refund.OrderID, RefundID: r.refund.ID, KeyID: r.run.KeyID,
		}.Encode(),
	}
	made, err := r.service.Orders.Payments.Refund(sending, payments.Key(r.run.KeyID, "-refund", r.refund.KeyNumber), params)
	failed := payments.Failure(err)
	switch {
	case failed == nil:
		return r.recordRefund(made)
	case failed.Outcome == payments.NotExecuted && failed.SavedUnderKey:
		// As the provider replays a refusal, no call under this key had an effect or will have one.
		r.refund.ProviderSentAt = nil
		r.refund.KeyNumber++
		return r.pause(httpjson.ErrProviderUnavailable, failed)
	case failed.Outcome == payments.NotExecuted:
		r.refund.ProviderSentAt = r.earlier
		return r.pause(r.kindOfFailure(), failed)
	}

	// The list shows whether the refund was made, possibly by an earlier call that caused a refusal.
	found, unread := r.findRefund(ctx)
	switch {
	case unread != nil:
		return nil, r.retryLater(httpjson.ErrOutcomeUnknown, unread)
	case found.ID != "":
		return r.recordRefund(found)
	case failed.Outcome == payments.Refused, failed.Outcome == payments.Declined, failed.Outcome == payments.UnexpectedState:
		if failed.EarlierUnknown {
			r.earlier = &sentAt
		}
		if r.mayArrive(r.earlier) && !failed.SavedUnderKey {
			r.refund.ProviderSentAt = r.earlier
			return r.pause(httpjson.ErrOutcomeUnknown, sentRecently())
		}
		return r.recordFailure(orders.RefusedBy(failed)), nil
	case failed.SavedUnderKey: // the refund may still be made
		now := r.run.Now()
		r.refund.ProviderFailedAt, r.refund.ProviderSentAt = &now, &now
		return r.pause(httpjson.ErrOutcomeUnknown, storedError())
	default:
		return nil, r.retryLater(httpjson.ErrOutcomeUnknown, failed) // the refund may still arrive
	}
}

func (r *refundRun) findRefund(ctx context.Context) (payments.Refund, *payments.Error) {
	var found payments.Refund
	refunds, err := r.service.Orders.Payments.ListRefunds(ctx, r.refund.IntentID)
	for _, at := range refunds {
		// If there are two, the one that is not void counts.
		if payments.ParseMetadata(at.Metadata).RefundID == r.refund.ID && (found.ID == "" || found.Status.Void()) {
			found = at
		}
	}
	return found, payments.Failure(err)
}

// closeUnmade fails a marked refund that the provider does not have, unless a call may still be executed (R29,
// durable cancel).
func (r *refundRun) closeUnmade(ctx context.Context) (idempotency.RecordFunc, error) {
	if r.mayArrive(r.refund.ProviderSentAt) {
		return nil, r.retryLater(httpjson.ErrOutcomeUnknown, sentRecently())
	}
	// The empty list of another provider account, as with a wrong API key, proves nothing.
	if _, err := r.service.Orders.Payments.Get(ctx, r.refund.IntentID); err != nil {
		return nil, r.retryLater(httpjson.ErrOutcomeUnknown, payments.Failure(err))
	}
	return r.recordFailure(orders.Refused("canceled", "The refund was cancelled before it was made.")), nil
}

// mayArrive reports whether a call that was sent at this time may still be executed. Then no failure is stored, except
// one that the provider has saved under the key of that call, because every repetition gets it, too.
func (r *refundRun) mayArrive(sent *time.Time) bool {
	return sent != nil && r.run.Now().Sub(*sent) <= inFlightGrace
}

func (r *refundRun) retryLater(kind error, failed *payments.Error) error {
	return r.service.Orders.RetryLater(kind, failed, "order_id", r.refund.OrderID, "refund_id", r.refund.ID, "key_id", r.run.KeyID)
}
