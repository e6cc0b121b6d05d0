package orders

import (
	"context"
	"net/netip"
	"strconv"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
	"example.com/orders-api/receipts"
)

// Recovery points of a creation, between the engine's started and finished.
const (
	pointOrderCreated  idempotency.RecoveryPoint = "order_created"
	pointChargeCreated idempotency.RecoveryPoint = "charge_created"
)

// providerMemory is how long the provider certainly knows an idempotency key:
// Stripe says 24 hours at least; the rest is for the clocks (R12).
const providerMemory = 23 * time.Hour

// creation is one run of the operation that makes an order.
type creation struct {
	service  *Service
	clientIP netip.Addr
	run      *idempotency.Run

	order       row  // what this run knows of the order
	known       bool // order is filled
	unconfirmed bool // nobody can have confirmed the intent yet

	// What the last call found out, for the transaction behind it.
	intentID   string
	failure    *failure
	nextKey    bool // the provider saved a 500 under the key (R12)
	failedKeys int  // how often that happened in this run
}

// Name is stored with the key.
func (c *creation) Name() string { return "create_order" }

// Steps returns the three steps of the picture in the package's doc.
func (c *creation) Steps(run *idempotency.Run) idempotency.Steps {
	c.run = run
	return idempotency.Steps{
		idempotency.Started: {Record: c.insertOrder},
		pointOrderCreated:   {Call: c.createIntent, Record: c.recordIntent},
		pointChargeCreated:  {Call: c.confirmIntent, Record: c.recordPayment},
	}
}

// insertOrder is transaction 1.
func (c *creation) insertOrder(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
	params, err := DecodeParams(c.run.Params)
	if err != nil {
		return idempotency.Outcome{}, err
	}
	amount, err := params.Amount()
	if err != nil {
		return idempotency.Outcome{}, err
	}
	c.order = row{
		Order: Order{
			ID:        orderID(c.run.AccountID, c.run.Key),
			Status:    StatusPending,
			Amount:    amount,
			Currency:  params.Currency,
			Email:     params.Email,
			Items:     params.Items,
			Metadata:  params.Metadata,
			CreatedAt: c.run.CreatedAt,
		},
		paymentMethod:  params.PaymentMethod,
		createAttempt:  1,
		confirmAttempt: 1,
	}
	c.known = true
	insertTx(tx, c.run, c.order)
	err = auditTx(tx, c.run.AccountID, c.order.ID, "order.created",
		map[string]any{"amount": amount, "currency": params.Currency}, c.clientIP, c.run.CreatedAt)
	return idempotency.Advance(pointOrderCreated), err
}

// createIntent makes the PaymentIntent, unconfirmed. No money moves.
func (c *creation) createIntent(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.service.stepTimeout)
	defer cancel()
	if err := c.load(ctx); err != nil {
		return err
	}
	c.intentID, c.failure, c.nextKey = "", nil, false

	if c.run.Now().Sub(c.order.CreatedAt) > providerMemory {
		// The provider may have forgotten the key and would make another intent.
		found, err := c.findIntent(ctx)
		if failed := providerError(err); failed != nil {
			return c.noOutcome(ErrProviderUnavailable, failed)
		}
		if found != "" {
			c.intentID = found
			return nil
		}
	}
	key := providerKey(c.run.KeyID, "", c.order.createAttempt)
	intent, err := c.service.payments.Create(ctx, key, payments.CreateParams{
		Amount:        c.order.Amount,
		Currency:      c.order.Currency,
		PaymentMethod: c.order.paymentMethod,
		Description:   "Order " + c.order.ID.String(),
		Metadata:      map[string]string{"order_id": c.order.ID.String(), "idempotency_key_id": c.run.KeyID.String()},
	})
	switch failed := providerError(err); {
	case failed == nil:
		c.intentID = intent.ID
		c.unconfirmed = !c.run.Resumed
		return nil
	case failed.Outcome == payments.Refused, failed.Outcome == payments.Declined:
		// An intent that was not even made can never be charged (R23).
		c.fail(refused(failed), failed)
		return nil
	case failed.Saved500:
		return c.tryNextKey(&c.order.createAttempt, ErrProviderUnavailable, failed)
	default:
		// Whatever became of it, an unconfirmed intent moves no money.
		return c.noOutcome(ErrProviderUnavailable, failed)
	}
}

// findIntent looks for the intent of an order that is older than the provider's
// memory of keys, and returns its id, or "" when there is none. One that may
// have been charged is taken before any other (R12).
func (c *creation) findIntent(ctx context.Context) (string, error) {
	var found payments.Intent
	since := c.order.CreatedAt.Add(-5 * time.Minute) // the provider's clock may be behind
	err := c.service.payments.List(ctx, since, c.run.Now().Add(5*time.Minute), func(intent payments.Intent) bool {
		if intent.Matches(c.order.Amount, c.order.Currency, c.order.ID.String()) &&
			intent.Status != payments.StatusCanceled &&
			(found.ID == "" || intent.Status == payments.StatusSucceeded) {
			found = intent
		}
		return found.Status != payments.StatusSucceeded
	})
	return found.ID, err
}

// recordIntent is transaction 2.
func (c *creation) recordIntent(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
	switch {
	case c.nextKey:
		setAttemptsTx(tx, c.run.AccountID, c.order.ID, c.order.createAttempt, c.order.confirmAttempt)
		return idempotency.Advance(pointOrderCreated), nil
	case c.failure != nil:
		return c.recordFailure(tx)
	default:
		c.order.PaymentIntentID = &c.intentID
		setIntentTx(tx, c.run.AccountID, c.order.ID, c.intentID)
		return idempotency.Advance(pointChargeCreated), nil
	}
}

// recordFailure stores the answer of an order that is not charged and never
// will be.
func (c *creation) recordFailure(tx *idempotency.Tx) (idempotency.Outcome, error) {
	response, err := c.failure.response(c.order.ID)
	if err != nil {
		return idempotency.Outcome{}, err
	}
	setPaymentFailedTx(tx, c.run.AccountID, c.order.ID)
	err = auditTx(tx, c.run.AccountID, c.order.ID, "order.payment_failed",
		map[string]any{"code": c.failure.code, "decline_code": c.failure.declineCode}, c.clientIP, c.run.Now())
	return idempotency.Finish(response), err
}

// recordPayment is transaction 3: the order is paid, its receipt staged and the
// answer stored, together or not at all (R15).
func (c *creation) recordPayment(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
	switch {
	case c.nextKey:
		setAttemptsTx(tx, c.run.AccountID, c.order.ID, c.order.createAttempt, c.order.confirmAttempt)
		return idempotency.Advance(pointChargeCreated), nil
	case c.failure != nil:
		return c.recordFailure(tx)
	}
	paidAt := c.run.Now()
	paid := c.order.Order
	paid.Status, paid.PaidAt = StatusPaid, &paidAt
	response, err := created(paid)
	if err != nil {
		return idempotency.Outcome{}, err
	}
	setPaidTx(tx, c.run.AccountID, paid.ID, paidAt)
	receipts.StageTx(tx, c.run.AccountID, paid.ID)
	err = auditTx(tx, c.run.AccountID, paid.ID, "order.paid",
		map[string]any{"payment_intent_id": *paid.PaymentIntentID, "amount": paid.Amount, "currency": paid.Currency},
		c.clientIP, paidAt)
	return idempotency.Finish(response), err
}

// load reads the order, unless this run made it.
func (c *creation) load(ctx context.Context) error {
	if c.known {
		return nil
	}
	o, err := find(ctx, c.service.pool, c.run.AccountID, orderID(c.run.AccountID, c.run.Key))
	if err != nil {
		return err
	}
	c.order, c.known = o, true
	return nil
}

// tryNextKey moves on from a key under which the provider saved a 500, once in
// a run: a provider that fails again needs time, not another request (R12).
func (c *creation) tryNextKey(attempt *int, kind error, failed *payments.Error) error {
	c.failedKeys++
	if c.failedKeys > 1 {
		return c.noOutcome(kind, failed)
	}
	*attempt++
	c.nextKey = true
	return nil
}

// retryAfter is how long a client waits when the provider named no time.
const retryAfter = 2 * time.Second

// noOutcome is the error of a step that cannot be recorded yet. It tells
// operators when nobody but them can help.
func (c *creation) noOutcome(kind error, failed *payments.Error) error {
	if failed.Misuse {
		c.service.logger.Error("the payment provider does not accept our requests",
			"order_id", c.order.ID, "key_id", c.run.KeyID, "error", failed)
	}
	wait := failed.RetryAfter
	if wait <= 0 {
		wait = retryAfter
	}
	return &ProviderError{Kind: kind, RetryAfter: wait, Cause: failed}
}

// providerKey is the provider's idempotency key for one attempt of one step
// (R5). The first attempt has no number.
func providerKey(keyID uuid.UUID, step string, attempt int) string {
	key := "orders-api-" + keyID.String() + step
	if attempt > 1 {
		key += "-" + strconv.Itoa(attempt)
	}
	return key
}
