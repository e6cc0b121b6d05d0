package orders

import (
	"context"
	"net/netip"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
	"example.com/orders-api/receipts"
)

// Request is a request for an order, or for a refund of one.
type Request struct {
	idempotency.Request

	ClientIP netip.Addr // for the audit record; the zero value if unknown
}

// Create creates and charges an order, or returns the stored response of its key. No
// error is stored: [*ValidationError], [*ProviderError], [*ActionRequiredError] or one of
// the engine.
func (s *Service) Create(ctx context.Context, req Request) (idempotency.Result, error) {
	return s.Engine.Do(ctx, req.Request, createOrder{Service: s, clientIP: req.ClientIP})
}

const (
	pointOrderCreated  idempotency.RecoveryPoint = "order_created"
	pointChargeCreated idempotency.RecoveryPoint = "charge_created"
)

type createOrder struct {
	*Service
	clientIP netip.Addr
	resolve  bool // an operator ends the order, see Service.Resolve
}

func (createOrder) Name() string { return "create_order" }

// Steps returns the steps by recovery point.
func (op createOrder) Steps(run *idempotency.Run) idempotency.Steps {
	r := &orderRun{createOrder: op, Run: run}
	return idempotency.Steps{
		Start: r.insertOrder,
		From: map[idempotency.RecoveryPoint]idempotency.Step{
			pointOrderCreated:  r.createIntent,
			pointChargeCreated: r.confirmIntent,
		},
	}
}

type orderRun struct {
	createOrder
	*idempotency.Run

	order orderRow // see load

	// unconfirmed means that the key's first run has just created the intent. It can be wrong
	// after a failover. That is safe: it saves one GET and chooses between two 503 problems.
	unconfirmed    bool
	rotated        bool             // see rotateKey
	createRejected bool             // the provider accepts no create, see createIntent
	action         *payments.Action // recorded by this run, see awaitAction
	search         intentSearch     // see findIntent
}

// insertOrder is transaction 1, which also claims the key. The order is a function of the
// key and its parameters (R5).
func (r *orderRun) insertOrder(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
	params, err := DecodeParams(r.Params)
	if err != nil {
		return idempotency.Outcome{}, err
	}
	r.order = orderRow{Params: params, createAttempt: 1, confirmAttempt: 1}
	r.order.ID, r.order.Status = orderID(r.AccountID, r.Key), StatusPending
	insertOrderTx(tx, r.Run, r.order)
	r.auditTx(tx, "order.created", map[string]any{"amount": r.order.Amount, "currency": r.order.Currency})
	return idempotency.Advance(pointOrderCreated), nil
}

// createIntent creates the PaymentIntent, unconfirmed, so no money moves. Transaction 2
// records its id.
func (r *orderRun) createIntent(ctx context.Context) (idempotency.Record, error) {
	ctx, cancel := r.stepContext(ctx)
	defer cancel()
	if err := r.load(ctx); err != nil {
		return nil, err
	}
	why, ends := r.ending()
	keyWorks := !r.createRejected && r.Now().Sub(r.order.CreatedAt.Time) <= providerKeyTTL
	if r.Resumed || !keyWorks {
		// An earlier run may have created the intent, perhaps one whose rows are lost, and the
		// provider key may have expired since (R12).
		if record, err := r.findIntent(ctx, keyWorks); record != nil || err != nil {
			return record, err
		}
	}
	if ends && !keyWorks {
		// A create in flight may still arrive, but no run confirms its intent (R23), and
		// reconcile cancels it.
		return r.recordFailure(why), nil
	}
	// Also if the order ends: the create returns the intent of an earlier create, which a
	// search may not find yet, and the next step cancels it.
	intent, failed := r.sendCreate(ctx)
	switch {
	case failed == nil:
		r.unconfirmed = !r.Resumed
		return r.recordIntent(intent.ID), nil
	case failed.Outcome == payments.Declined: // no intent exists, so nothing can be charged (R23)
		return r.recordFailure(declinedBy(failed)), nil
	case failed.Outcome == payments.Refused:
		return r.recordFailure(refusedBy(failed)), nil
	case ends && failed.Outcome == payments.NotExecuted && failed.NeedsOperator:
		r.createRejected = true // the order ends nevertheless
		return repeatCreate, nil
	case failed.ReplayedError:
		return r.rotateKey(&r.order.createAttempt, pointOrderCreated, ErrProviderUnavailable, failed)
	default: // an unconfirmed intent moves no money, so the outcome does not matter
		return nil, r.retryLater(ErrProviderUnavailable, failed)
	}
}

// repeatCreate only commits, which renews the lease (R8), and repeats the step.
func repeatCreate(context.Context, *idempotency.Tx) (idempotency.Outcome, error) {
	return idempotency.Advance(pointOrderCreated), nil
}

func (r *orderRun) sendCreate(ctx context.Context) (payments.Intent, *payments.Error) {
	intent, err := r.Payments.Create(ctx, providerKey(r.KeyID, "", r.order.createAttempt), payments.CreateParams{
		Amount:        r.order.Amount,
		Currency:      r.order.Currency,
		PaymentMethod: r.order.PaymentMethod,
		Description:   "Order " + r.order.ID.String(),
		Metadata: map[string]string{ // see keyFromMetadata
			"account_id":         r.AccountID.String(),
			"order_id":           r.order.ID.String(),
			"idempotency_key_id": r.KeyID.String(),
		},
	})
	return intent, asPaymentError(err)
}

// confirmIntent charges the card. This is the only call that moves money, and it does so
// at most once per intent. Transaction 3 records the payment.
func (r *orderRun) confirmIntent(ctx context.Context) (idempotency.Record, error) {
	ctx, cancel := r.stepContext(ctx)
	defer cancel()
	if err := r.load(ctx); err != nil {
		return nil, err
	}
	why, ends := r.ending()
	if r.action != nil && !ends { // recorded by recordAction
		return nil, r.actionRequired()
	}
	if r.unconfirmed && !ends {
		r.unconfirmed = false
		return r.confirm(ctx, true)
	}
	// An earlier run may have confirmed the intent: read it before acting (R12).
	intent, failed := r.readIntent(ctx, r.order)
	switch {
	case ends:
		return r.end(ctx, intent, failed, why)
	case failed != nil:
		return nil, r.retryLater(ErrOutcomeUnknown, failed)
	case intent.Status == payments.StatusRequiresConfirmation:
		return r.confirm(ctx, false)
	default:
		return r.applyStatus(ctx, intent)
	}
}

// load reads the order, unless this run has inserted it.
func (r *orderRun) load(ctx context.Context) (err error) {
	switch {
	case r.order.ID == uuid.Nil:
		r.order, err = findOrder(ctx, r.Pool, r.AccountID, orderID(r.AccountID, r.Key))
	case r.order.CreatedAt.IsZero(): // inserted with its key, at the same time
		r.order.CreatedAt = Timestamp{r.CreatedAt}
	}
	return mustExist(err, "the order of key", r.KeyID)
}

// recordIntent is transaction 2.
func (r *orderRun) recordIntent(id string) idempotency.Record {
	r.order.PaymentIntentID = &id
	return func(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
		updateOrderTx(tx, r.AccountID, r.order.ID, "payment_intent_id = $3", id)
		r.auditTx(tx, "order.charge_created", map[string]any{"payment_intent_id": id})
		return idempotency.Advance(pointChargeCreated), nil
	}
}

// recordPayment is transaction 3: the order is paid, its receipt staged and the response
// stored, together or not at all (R15).
func (r *orderRun) recordPayment(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
	paidAt := r.Now()
	paid := r.order.Order
	paid.Status, paid.PaidAt = StatusPaid, &Timestamp{paidAt}
	updateOrderTx(tx, r.AccountID, paid.ID, "status = 'paid', paid_at = $3", paidAt)
	receipts.StageTx(tx, r.AccountID, paid.ID)
	r.auditTx(tx, "order.paid", map[string]any{
		"payment_intent_id": *paid.PaymentIntentID, "amount": paid.Amount, "currency": paid.Currency,
	})
	return finishCreated("/v1/orders/"+paid.ID.String(), paid)
}

// recordFailure stores the response of an order that can no longer be charged (R23).
func (r *orderRun) recordFailure(why failure) idempotency.Record {
	return func(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
		updateOrderTx(tx, r.AccountID, r.order.ID,
			"status = 'payment_failed', failure_code = $3, decline_code = $4", why.Code, optional(why.DeclineCode))
		r.auditTx(tx, "order.payment_failed", map[string]any{"code": why.Code, "decline_code": why.DeclineCode})
		return why.finish(r.order.ID)
	}
}

func (r *orderRun) auditTx(tx *idempotency.Tx, action string, data map[string]any) {
	auditTx(tx, r.AccountID, r.order.ID, action, data, r.clientIP)
}
