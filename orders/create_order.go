package orders

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/audit"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/payments"
)

const (
	pointOrderCreated  idempotency.RecoveryPoint = "order_created"
	pointChargeCreated idempotency.RecoveryPoint = "charge_created"
)

type createOrder struct{ service *Service }

func (createOrder) Name() string { return CreateOperation }

// Mark implements [idempotency.Marker].
func (createOrder) Mark(batch *pgx.Batch, key idempotency.StoredKey, operator string) {
	batch.Queue(requestCancelSQL, key.AccountID, orderID(key.AccountID, key.Key), operator)
}

// Links implements [httpjson.Linker].
func (createOrder) Links(key idempotency.StoredKey) httpjson.Links {
	return httpjson.Links{}.Created("order", key, orderID)
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

// orderRun is one run of an order. Its recovery point and the order's row are the state that a later run continues
// from. The two flags only spare this run a call.
type orderRun struct {
	createOrder

	run   *idempotency.Run
	order orderRow // see load

	// justCreated means that this run, the key's first, has created the intent in the step before. After
	// a failover it may be wrong, but it only decides whether to skip a GET, and which 503 to return.
	justCreated bool

	keyRotated bool // this run has taken the next provider key, see repeatWithNextKey
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
	if errors.Is(err, httpjson.ErrNotFound) {
		return fmt.Errorf("%w: the other order with this reference has just failed", postgres.ErrUnavailable)
	}
	if err != nil {
		return err
	}
	return &httpjson.Rejection{
		Slug: "order-exists", Detail: "The order in order_id has this reference, and its payment has not failed.", OrderID: &other.ID,
	}
}

// CreatePeriod is how long a create is sent after the order's row was inserted. At worst, the row is lost, a client
// inserts it again 23 hours after the first create, at the end of the longest charge window, and a create is sent
// half an hour later. The provider remembers a key for 24 hours, so even this one returns the first intent (R12, read
// first).
const CreatePeriod = 30 * time.Minute

// createIntent creates the PaymentIntent, unconfirmed, so no money moves. An earlier run may have created it, so a
// resumed run searches first (R12, read first). After the create's period, every run does, and fails the order if
// there is none, as after a refused create. A create in flight may still arrive then, but no run confirms its intent.
//
// An order that is cancelled gets an intent, too, which the next step cancels. A failover may lose the cancel, and
// a later run then finds that intent.
func (r *orderRun) createIntent(ctx context.Context) (idempotency.RecordFunc, error) {
	ctx, cancel := r.service.Payments.StepContext(ctx)
	defer cancel()
	if err := r.load(ctx); err != nil {
		return nil, err
	}
	mayCreate := !r.run.LeaseEnd().After(r.order.CreatedAt.Add(min(CreatePeriod, r.service.ChargeWindow)))
	if !mayCreate {
		return r.failWithoutIntent(ctx, mayCreate, r.notCreated())
	}
	if r.run.Resumed {
		if record, err := r.adoptIntent(ctx, mayCreate); record != nil || err != nil {
			return record, err
		}
	}
	intent, err := r.service.Payments.Create(ctx, payments.Key(r.run.KeyID, "", r.order.CreateKeyNumber), payments.CreateParams{
		Amount:        r.order.Amount,
		Currency:      r.order.Currency,
		PaymentMethod: r.order.PaymentMethod,
		Description:   "Order " + r.order.ID.String(),
		Metadata:      payments.Metadata{AccountID: r.run.AccountID, OrderID: r.order.ID, KeyID: r.run.KeyID}.Encode(),
	})
	failed := payments.Failure(err)
	switch {
	case failed == nil:
		r.justCreated = !r.run.Resumed && !intent.Replayed // a run whose rows were lost may have confirmed a replayed one
		return r.recordIntent(intent.ID, intent.Replayed), nil
	case failed.Outcome == payments.Declined: // no intent exists, so nothing can be charged
		return r.recordFailure(DeclinedBy(failed)), nil
	case failed.Outcome == payments.Refused:
		return r.failWithoutIntent(ctx, mayCreate, RefusedBy(failed))
	case failed.Outcome == payments.KeyUsed:
		return nil, r.reportOtherCreate(ctx)
	case failed.SavedUnderKey:
		r.order.CreateKeyNumber++
		return r.repeatWithNextKey(pointOrderCreated, httpjson.ErrProviderUnavailable, failed)
	default: // an unconfirmed intent moves no money, so the outcome does not matter
		return nil, r.retryLater(httpjson.ErrProviderUnavailable, failed)
	}
}

// adoptIntent records the intent that an earlier run has created, or returns nil if the search finds none. It also
// returns nil if no search is possible, although a create may then find the intent (mayCreate), or no later run can
// search either, because the charge window is over. Any other error is worth another run.
func (r *orderRun) adoptIntent(ctx context.Context, mayCreate bool) (idempotency.RecordFunc, error) {
	ids, err := r.service.Payments.Search(ctx, payments.MetadataOrderID, r.order.ID.String())
	failed := payments.Failure(err)
	switch {
	case failed == nil:
		found, err := r.choose(ctx, ids)
		// While creates are sent, the create decides which intent it is, unless the one that was found is charged or
		// in progress: under its key, the provider may return a later intent, which the search does not list yet.
		if err != nil || found.ID == "" || mayCreate && precedence(found.Status) < inProgress {
			return nil, err
		}
		return r.recordIntent(found.ID, true), nil
	case failed.Outcome == payments.NotOffered && mayCreate, r.endsUnsearched(failed):
		return nil, nil
	default:
		return nil, r.retryLater(httpjson.ErrProviderUnavailable, failed)
	}
}

// endsUnsearched reports whether the charge window ends an order although the provider answers no search, because
// the account has none or our API key is rejected (R12, read first).
func (r *orderRun) endsUnsearched(failed *payments.Error) bool {
	return (failed.Outcome == payments.NotOffered || failed.KeyRejected()) && r.service.windowOver(r.order, r.run.LeaseEnd())
}

// notCreated is why an order fails that never had an intent.
func (r *orderRun) notCreated() Problem {
	if r.order.CancelRequested {
		return *r.closeReason()
	}
	return Refused("payment_not_created", "The payment could not be created in time, and it will not be created any more.")
}

// choose returns the order's intent with the highest precedence, or a zero one. It reads each, because the search
// may return an old status. One with another amount or currency is of a create with other parameters, and needs an
// operator unless it was cancelled.
func (r *orderRun) choose(ctx context.Context, ids []string) (chosen payments.Intent, err error) {
	for _, id := range ids {
		intent, err := r.service.Payments.Get(ctx, id)
		if err != nil {
			return payments.Intent{}, r.retryLater(httpjson.ErrProviderUnavailable, payments.Failure(err))
		}
		switch _, other := verify(r.order, intent, nil); {
		case payments.ParseMetadata(intent.Metadata).OrderID != r.order.ID:
		case other != nil && intent.Status != payments.StatusCanceled:
			return payments.Intent{}, r.reportOtherCreate(ctx)
		case other == nil && precedence(intent.Status) > precedence(chosen.Status):
			chosen = intent
		}
	}
	return chosen, nil
}

// inProgress is the precedence from which an intent is charged, or may be charged without a confirm of ours.
const inProgress = 3

// precedence ranks the intents of an order: succeeded, in progress, failed (the client may already
// have the failure), unconfirmed, none. An unknown status may be that of a payment in progress.
func precedence(status payments.Status) int {
	switch status {
	case payments.StatusSucceeded:
		return inProgress + 1
	case payments.StatusCanceled, payments.StatusRequiresPaymentMethod:
		return 2
	case payments.StatusRequiresConfirmation:
		return 1
	case "":
		return 0
	default:
		return inProgress
	}
}

// failWithoutIntent fails an order that has no intent, because the provider refused the create or lists none. It
// searches first, because a card that is accepted only once is refused after it has paid for an order that was lost.
// But if the provider does not know the account's latest intent either, the API key belongs to another Stripe account
// or mode, and neither a refusal nor an empty list is final.
func (r *orderRun) failWithoutIntent(ctx context.Context, mayCreate bool, why Problem) (idempotency.RecordFunc, error) {
	if record, err := r.adoptIntent(ctx, mayCreate); record != nil || err != nil {
		return record, err
	}
	if err := r.checkOtherCreate(ctx); err != nil {
		return nil, err
	}
	err := r.service.CheckProviderAccount(ctx, r.run.AccountID)
	failed, byProvider := errors.AsType[*payments.Error](err)
	switch {
	case err == nil, byProvider && r.endsUnsearched(failed):
		return r.recordFailure(why), nil
	case byProvider:
		return nil, r.retryLater(httpjson.ErrProviderUnavailable, failed)
	default:
		return nil, err
	}
}

// reportOtherCreate reports that an earlier create of the order had other parameters. For example, the order was lost,
// and its client has sent another order under the same key. So there is an intent that may be charged.
func (r *orderRun) reportOtherCreate(ctx context.Context) error {
	batch := &pgx.Batch{}
	jobs.Report(batch, r.run.AccountID, otherCreate, map[string]uuid.UUID{"order_id": r.order.ID, "key_id": r.run.KeyID}, r.order.ID.String())
	return cmp.Or(postgres.Translate(r.service.Pool.SendBatch(ctx, batch).Close()),
		r.retryLater(httpjson.ErrProviderUnavailable, &payments.Error{NeedsOperator: true, Code: otherCreate}))
}

const otherCreate = "create_with_other_parameters"

// checkOtherCreate returns an error while an operator has not dealt with such a create, because until then an
// empty search proves nothing.
func (r *orderRun) checkOtherCreate(ctx context.Context) error {
	found, err := jobs.With(ctx, r.service.Pool, r.run.AccountID, map[string]any{"order_id": r.order.ID})
	switch {
	case err != nil:
		return postgres.Translate(err)
	case slices.ContainsFunc(found, func(j jobs.Job) bool { return j.Kind == jobs.Discrepancy && j.LastError == otherCreate }):
		return r.retryLater(httpjson.ErrProviderUnavailable, &payments.Error{NeedsOperator: true, Code: otherCreate})
	}
	return nil
}

// load reads the order, unless this run has inserted it, and then knows what it has recorded.
func (r *orderRun) load(ctx context.Context) (err error) {
	if r.run.Resumed {
		r.order, err = r.service.ofKey(ctx, r.run.AccountID, r.run.Key)
		return err
	}
	r.order.CreatedAt = httpjson.Timestamp{Time: r.run.CreatedAt} // of the same transaction
	return nil
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

// updateTx queues an UPDATE of the run's order. set is constant SQL, and its values begin with $3. It also
// reads whether a cancel was requested since the order was read (R29, durable cancel).
func (r *orderRun) updateTx(tx *idempotency.Tx, set string, values ...any) {
	tx.Queue("UPDATE orders SET "+set+" WHERE account_id = $1 AND id = $2 RETURNING cancel_requested_at IS NOT NULL",
		append([]any{r.run.AccountID, r.order.ID}, values...)...,
	).QueryRow(func(row pgx.Row) error { return row.Scan(&r.order.CancelRequested) })
}

func (r *orderRun) auditTx(ctx context.Context, tx *idempotency.Tx, action string, data map[string]any) {
	audit.WriteTx(ctx, tx, r.run.AccountID, r.order.ID, action, data)
}
