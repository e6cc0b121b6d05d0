package orders

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/operations"
	"example.com/orders-api/operations/audit"
	"example.com/orders-api/orders/provider"
	"example.com/orders-api/payments"
)

const (
	pointOrderCreated  idempotency.RecoveryPoint = "order_created"
	pointChargeCreated idempotency.RecoveryPoint = "charge_created"
)

type createOrder struct{ service *Service }

func (createOrder) Name() string { return Operation }

// Mark implements [operations.Marker].
func (createOrder) Mark(tx postgres.Queuer, key idempotency.StoredKey, operator string) {
	tx.Queue(requestCancelSQL, key.AccountID, orderID(key.AccountID, key.Key), operator)
}

func (op createOrder) Steps(run *idempotency.Run) idempotency.Steps {
	r := &orderRun{createOrder: op, run: run}
	return idempotency.Steps{
		Start:    r.insertOrder,
		Violated: r.violated,
		At: map[idempotency.RecoveryPoint]idempotency.StepFunc{
			pointOrderCreated:  r.createIntent,
			pointChargeCreated: r.confirmIntent,
		},
	}
}

type orderRun struct {
	createOrder

	run   *idempotency.Run
	order orderRow // see load
	stale bool     // see updateTx

	createUnrepeatable bool         // a repeated create would not return an earlier run's intent
	search             intentSearch // see findIntent

	// justCreated means that this run, the key's first, has created the intent in the step before. After
	// a failover it may be wrong, but it only decides whether to skip a GET, and which 503 to return.
	justCreated bool

	action     *payments.Action // recorded by this run, see awaitAction
	keyRotated bool             // see repeatWithNextKey
}

// insertOrder is transaction 1, which also claims the key. The order's id derives from the key, so if
// a failover loses the rows, a retry inserts the same id and finds its payment (R5, derived ids).
func (r *orderRun) insertOrder(ctx context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
	request, err := DecodeOrderRequest(r.run.Params)
	if err != nil {
		return idempotency.Transition{}, err
	}
	request.ID, request.Status = orderID(r.run.AccountID, r.run.Key), StatusPending
	r.order = orderRow{OrderRequest: request, CreateKeyNumber: 1, ConfirmKeyNumber: 1}
	tx.Queue(`
INSERT INTO orders (
    id,
    account_id,
    idempotency_key,
    email,
    currency,
    amount,
    items,
    metadata,
    payment_method,
    off_session,
    status,
    reference,
    created_at
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, now())`,
		request.ID, r.run.AccountID, string(r.run.Key), request.Email, request.Currency, request.Amount, request.Items, request.Metadata,
		request.PaymentMethod, request.OffSession, request.Status, request.Reference)
	r.auditTx(ctx, tx, "order.created", map[string]any{"amount": r.order.Amount, "currency": r.order.Currency})
	return idempotency.Advance(pointOrderCreated), nil
}

// violated returns the error of a request whose order exists although its key does not, or whose reference
// another order has (R26, one order per reference).
func (r *orderRun) violated(ctx context.Context, constraint string) error {
	switch {
	case strings.Contains(constraint, "orders_pkey"):
		return r.run.Expired()
	case !strings.Contains(constraint, "orders_reference_unique"):
		return nil
	}
	other, err := r.service.findByReference(ctx, r.run.AccountID, *r.order.Reference)
	if errors.Is(err, operations.ErrNotFound) {
		return fmt.Errorf("%w: the other order with this reference has just failed", postgres.ErrUnavailable)
	}
	if err != nil {
		return err
	}
	return &OrderExistsError{other.ID}
}

// createIntent creates the PaymentIntent, unconfirmed, so no money moves. It searches for the intent of
// an earlier run first, unless a repeated create is sure to return it (R12, read first):
//
//	run      provider key   order       calls
//	first    remembered     any         create
//	resumed  remembered     any         search, then create if none is found
//	any      forgotten      stays open  search all, then create if none is found
//	any      forgotten      window over search all, then fail the order if none is found
//
// An order that closes within its charge window, because it is cancelled, gets an intent, which the next step
// cancels. A failover may lose the cancel, and a later run then finds that intent.
//
// In the second row, the order may have been inserted again after lost rows, so its provider key may be
// older than the order. The create is sent even if the order must close, because the search may not find
// the intent of an earlier run yet; the next step cancels what the create returns.
func (r *orderRun) createIntent(ctx context.Context) (idempotency.RecordFunc, error) {
	ctx, cancel := r.service.Calls.Context(ctx)
	defer cancel()
	if err := r.load(ctx); err != nil {
		return nil, err
	}
	closing := r.closeReason()
	createRepeatable := !r.createUnrepeatable && r.keyRemembered(r.order.CreatedAt.Time)
	if r.run.Resumed || !createRepeatable {
		switch found, complete, err := r.findIntent(ctx, createRepeatable); {
		case err != nil:
			return nil, err
		case !complete:
			return repeatCreate, nil
		case found.ID != "":
			return r.recordIntent(found.ID, found.Status == payments.StatusSucceeded), nil
		}
	}
	windowOver := r.service.windowOver(r.order, r.run.LeaseEnd())
	if closing != nil && !createRepeatable && (windowOver || r.createUnrepeatable) {
		// A create in flight may still arrive, but no run confirms its intent.
		return r.failWithoutIntent(ctx, *closing)
	}
	intent, failed := r.sendCreate(ctx)
	switch {
	case failed == nil:
		r.justCreated = !r.run.Resumed && !intent.Replayed // a run whose rows were lost may have confirmed a replayed one
		return r.recordIntent(intent.ID, intent.Replayed), nil
	case failed.Outcome == payments.Declined: // no intent exists, so nothing can be charged
		return r.recordFailure(provider.DeclinedBy(failed)), nil
	case failed.Outcome == payments.Refused:
		return r.failWithoutIntent(ctx, provider.RefusedBy(failed))
	case windowOver && failed.Outcome == payments.NotExecuted && failed.NeedsOperator:
		r.createUnrepeatable = true // the provider accepts no create, and the order must close nevertheless
		return repeatCreate, nil
	case failed.SavedUnderKey:
		r.order.CreateKeyNumber++
		return r.repeatWithNextKey(pointOrderCreated, operations.ErrProviderUnavailable, failed)
	default: // an unconfirmed intent moves no money, so the outcome does not matter
		return nil, r.retryLater(operations.ErrProviderUnavailable, failed)
	}
}

// failWithoutIntent fails an order that has no intent, because the provider refused the create or
// lists none. But if it does not know the account's latest intent either, the API key belongs to
// another Stripe account or mode, and neither a refusal nor an empty list is final.
func (r *orderRun) failWithoutIntent(ctx context.Context, why provider.Problem) (idempotency.RecordFunc, error) {
	err := r.service.CheckProviderAccount(ctx, r.run.AccountID)
	if failed, ok := errors.AsType[*payments.Error](err); ok {
		return nil, r.retryLater(operations.ErrProviderUnavailable, failed)
	}
	return r.recordFailure(why), err
}

func (r *orderRun) load(ctx context.Context) (err error) {
	switch {
	case r.order.ID == uuid.Nil, r.stale:
		r.stale = false
		r.order, err = r.service.find(ctx, r.run.AccountID, orderID(r.run.AccountID, r.run.Key))
	case r.order.CreatedAt.IsZero(): // this run inserted it, in the transaction that created the key
		r.order.CreatedAt = operations.Timestamp{Time: r.run.CreatedAt}
	}
	return mustExist(err, r.run.KeyID)
}

func repeatCreate(context.Context, *idempotency.Tx) (idempotency.Transition, error) {
	return idempotency.Advance(pointOrderCreated), nil
}

// recordIntent is transaction 2. An intent that was adopted may have refunds and disputes, because an earlier
// run, whose rows were lost, may have charged it (R27, the provider's events).
func (r *orderRun) recordIntent(id string, adopted bool) idempotency.RecordFunc {
	r.order.PaymentIntentID = &id
	return func(ctx context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
		r.updateTx(tx, "payment_intent_id = $3", id)
		if adopted {
			StageChange(tx, r.run.AccountID, r.order.ID)
		}
		r.auditTx(ctx, tx, "order.charge_created", map[string]any{"payment_intent_id": id})
		return idempotency.Advance(pointChargeCreated), nil
	}
}

func (r *orderRun) auditTx(ctx context.Context, tx *idempotency.Tx, action string, data map[string]any) {
	audit.WriteTx(ctx, tx, r.run.AccountID, r.order.ID, action, data)
}
