package orders

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/receipts"
)

// Recovery points of a creation, between the engine's started and finished.
const (
	pointOrderCreated  idempotency.RecoveryPoint = "order_created"
	pointChargeCreated idempotency.RecoveryPoint = "charge_created"
)

// createOrder is the operation that makes an order.
type createOrder struct {
	service  *Service
	clientIP netip.Addr
	closing  bool   // see Service.Resolve
	params   Params // of the request; see newRow
}

// Name is stored with the key.
func (createOrder) Name() string { return "create_order" }

// Steps returns the three steps of the picture in the package's doc.
func (op createOrder) Steps(run *idempotency.Run) idempotency.Steps {
	c := &creation{service: op.service, clientIP: op.clientIP, closing: op.closing, params: op.params, run: run}
	return idempotency.Steps{
		idempotency.Started: {Record: c.insertOrder},
		pointOrderCreated:   {Call: c.createIntent, Record: c.recordIntent},
		pointChargeCreated:  {Call: c.confirmIntent, Record: c.recordPayment},
	}
}

// creation is one run of createOrder. Its fields belong to the calls; a record
// reads them and changes none, because it may be repeated.
type creation struct {
	service  *Service
	clientIP netip.Addr
	params   Params
	run      *idempotency.Run

	// closing says that the order is to be ended without a charge, unless there
	// was one already.
	closing bool

	// order is what this run knows of the order, see load.
	order row

	// unconfirmed says that the intent was made by this run, which is the
	// request's first, so that nobody has confirmed it yet. After a failover that
	// lost the order it is wrong. Nothing rests on it but a question saved, and
	// what a client is told whose confirm did not run.
	unconfirmed bool

	// What the last call found out, for the transaction behind it.
	failure   *failure // nil when it went well
	nextKey   bool     // go on under the next provider key
	spentKeys int      // how often that happened in this run
}

// newRow is the order that a run begins with, a function of what is stored with
// the key (R4). What the first run has stored is its own request, which is decoded
// already.
func (c *creation) newRow() (row, error) {
	run, params := c.run, c.params
	if run.Resumed {
		var err error
		if params, err = DecodeParams(run.Params); err != nil {
			return row{}, err
		}
	}
	amount, err := params.Amount()
	if err != nil {
		return row{}, err
	}
	return row{
		Order: Order{
			ID:        orderID(run.AccountID, run.Key),
			Status:    StatusPending,
			Amount:    amount,
			Currency:  params.Currency,
			Email:     params.Email,
			Items:     params.Items,
			Metadata:  params.Metadata,
			CreatedAt: run.CreatedAt,
		},
		paymentMethod:  params.PaymentMethod,
		createAttempt:  1,
		confirmAttempt: 1,
	}, nil
}

// load makes the order known to a call: a resumed run reads it, the first one
// has just inserted it.
func (c *creation) load(ctx context.Context) error {
	if c.order.ID != uuid.Nil {
		return nil
	}
	var o row
	var err error
	if c.run.Resumed {
		o, err = find(ctx, c.service.pool, c.run.AccountID, orderID(c.run.AccountID, c.run.Key))
	} else {
		o, err = c.newRow()
	}
	if errors.Is(err, ErrNotFound) {
		return fmt.Errorf("key %s has no order", c.run.KeyID) // and the client's address is not wrong
	}
	if err != nil {
		return err
	}
	c.order = o
	return nil
}

// insertOrder is transaction 1.
func (c *creation) insertOrder(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
	o, err := c.newRow()
	if err != nil {
		return idempotency.Outcome{}, err
	}
	insertTx(tx, c.run, o)
	err = auditTx(tx, c.run.AccountID, o.ID, "order.created",
		map[string]any{"amount": o.Amount, "currency": o.Currency}, c.clientIP, c.run.CreatedAt)
	return idempotency.Advance(pointOrderCreated), err
}

// recordIntent is transaction 2.
func (c *creation) recordIntent(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
	switch {
	case c.nextKey:
		setAttemptsTx(tx, c.run.AccountID, c.order)
		return idempotency.Advance(pointOrderCreated), nil
	case c.failure != nil:
		return c.recordFailure(tx)
	default:
		setIntentTx(tx, c.run.AccountID, c.order)
		err := auditTx(tx, c.run.AccountID, c.order.ID, "order.charge_created",
			map[string]any{"payment_intent_id": *c.order.PaymentIntentID}, c.clientIP, c.run.Now())
		return idempotency.Advance(pointChargeCreated), err
	}
}

// recordPayment is transaction 3: the order is paid, its receipt staged and the
// answer stored, together or not at all (R15).
func (c *creation) recordPayment(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
	switch {
	case c.nextKey:
		setAttemptsTx(tx, c.run.AccountID, c.order)
		return idempotency.Advance(pointChargeCreated), nil
	case c.failure != nil:
		return c.recordFailure(tx)
	}
	paidAt := c.run.Now()
	paid := c.order.Order
	paid.Status, paid.PaidAt = StatusPaid, &paidAt
	response, err := created("/v1/orders/"+paid.ID.String(), paid)
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

// recordFailure stores the answer of an order that is not charged and never
// will be (R23).
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
