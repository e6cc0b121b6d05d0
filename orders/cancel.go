package orders

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/audit"
	"example.com/orders-api/internal/httpjson"
)

const (
	cancelPath = Path + "/{id}/cancel"

	pointCancelRequested idempotency.RecoveryPoint = "cancel_requested"
)

const (
	notCancelable = "order-not-cancelable"
	chargedBefore = "The card was charged before the order could be cancelled."
)

type cancelOrder struct{ service *Service }

func (cancelOrder) Name() string { return CancelOperation }

// Mark implements [idempotency.Marker] with a mark of the order.
func (cancelOrder) Mark(batch *pgx.Batch, key idempotency.StoredKey, operator string) {
	batch.Queue(requestCancelSQL, key.AccountID, httpjson.ParentID(cancelPath, key.Path), operator)
}

// Links implements [httpjson.Linker]. A cancel creates nothing.
func (cancelOrder) Links(key idempotency.StoredKey) httpjson.Links {
	return httpjson.Links{"order": httpjson.NewLink(Path, httpjson.ParentID(cancelPath, key.Path))}
}

func (op cancelOrder) Steps(run *idempotency.Run) idempotency.Steps {
	r := &cancelRun{op, run}
	return idempotency.Steps{
		Start: r.request,
		At:    map[idempotency.RecoveryPoint]idempotency.StepFunc{pointCancelRequested: r.end},
	}
}

type cancelRun struct {
	cancelOrder

	run *idempotency.Run
}

func (r *cancelRun) orderID() uuid.UUID { return httpjson.ParentID(cancelPath, r.run.Path) }

// requestCancelSQL makes every later run of the order close it (R29, durable cancel). $3 is the operator who
// requests it, or NULL.
const requestCancelSQL = `
UPDATE orders
   SET cancel_requested_at = now(),
       cancel_requested_by = coalesce($3, cancel_requested_by)
 WHERE account_id = $1
   AND id = $2
RETURNING status`

// request is transaction 1. From its commit on, every run of the order closes it (R29, durable cancel), so
// a crash after it does not lose the cancel. If the order has failed already, the request has no effect.
func (r *cancelRun) request(ctx context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
	if err := httpjson.NewDecoder(r.run.Params).Err(); err != nil {
		return idempotency.Transition{}, err
	}
	var status Status
	err := tx.QueryRow(ctx, requestCancelSQL, []any{r.run.AccountID, r.orderID(), nil}, &status)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return idempotency.Transition{}, httpjson.ErrNotFound
	case err != nil:
		return idempotency.Transition{}, err
	case status.Paid():
		return idempotency.Transition{}, &httpjson.Rejection{Slug: notCancelable, Detail: chargedBefore, OrderID: new(r.orderID())}
	}
	audit.WriteTx(ctx, tx, r.run.AccountID, r.orderID(), "order.cancel_requested", map[string]any{"key_id": r.run.KeyID})
	return idempotency.Advance(pointCancelRequested), nil
}

// end resumes the key of an open order, as the completer would, and then reads the order. Only the order
// decides the response, because the run of its key may fail, or find that another run holds the key
// (R29, durable cancel).
func (r *cancelRun) end(ctx context.Context) (idempotency.RecordFunc, error) {
	order, err := r.service.find(ctx, r.run.AccountID, r.orderID())
	var failed error
	if err == nil && order.Status.Open() {
		keyID := idempotency.KeyID(r.run.AccountID, order.IdempotencyKey)
		_, failed = r.service.Engine.Resume(ctx, r.run.AccountID, keyID)
		order, err = r.service.find(ctx, r.run.AccountID, r.orderID())
	}
	switch {
	case err != nil:
		return nil, err
	case order.Status == StatusPaymentFailed:
		return func(context.Context, *idempotency.Tx) (idempotency.Transition, error) {
			return httpjson.FinishOK(order.Order)
		}, nil
	case order.Status.Paid():
		return func(context.Context, *idempotency.Tx) (idempotency.Transition, error) {
			p := Problem{Problem: httpjson.NewProblem(notCancelable, 422,
				"The order cannot be cancelled", chargedBefore)}
			p.Retry = "never"
			return p.Finish(order.ID)
		}, nil
	default:
		return nil, stillOpen(failed)
	}
}

// stillOpen returns the error of a cancel whose order is still open. It does not wrap the error of the
// order's run, because the engine would apply a lost lease or a required action to the key of the cancel.
func stillOpen(failed error) error {
	retryAfter := time.Second
	if inner, ok := errors.AsType[*httpjson.ProviderError](failed); ok {
		retryAfter = cmp.Or(inner.RetryAfter, retryAfter)
	}
	return &httpjson.ProviderError{
		Kind: httpjson.ErrOutcomeUnknown, RetryAfter: retryAfter, Cause: fmt.Errorf("the order is still open: %v", failed), //nolint:errorlint // see above
	}
}
