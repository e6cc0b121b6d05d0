package orders

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
)

// pointRefundCreated is the recovery point of a refund between the engine's
// started and finished.
const pointRefundCreated idempotency.RecoveryPoint = "refund_created"

// createRefund is the operation that gives money back.
type createRefund struct {
	service  *Service
	clientIP netip.Addr
	orderID  uuid.UUID // of a request; a resumed run finds it with the refund (R4)
	closing  *closing  // see Service.Resolve
}

// Name is stored with the key.
func (createRefund) Name() string { return "create_refund" }

// Steps returns the two steps of a refund:
//
//	started         tx 1: claim the key, hold the amount, insert the refund
//	refund_created  call: refund (money moves here); tx 2: record what came of it,
//	                raise the order's amount_refunded, store the response
//	finished
func (op createRefund) Steps(run *idempotency.Run) idempotency.Steps {
	g := &givingBack{service: op.service, clientIP: op.clientIP, orderID: op.orderID, closing: op.closing, run: run}
	return idempotency.Steps{
		idempotency.Started: {Record: g.insertRefund},
		pointRefundCreated:  {Call: g.refund, Record: g.recordRefund},
	}
}

// givingBack is one run of createRefund. Its fields belong to the call; a record
// reads them and changes none, because it may be repeated.
type givingBack struct {
	service  *Service
	clientIP netip.Addr
	orderID  uuid.UUID
	closing  *closing
	run      *idempotency.Run

	row  refundRow // what this run knows of the refund, see load
	sent bool      // this run sent the refund

	// What the last call found out, for the transaction behind it.
	made    payments.Refund // at the provider; without an id there is none
	failure *failure        // nil when it went well
	kept500 bool            // the provider keeps a 500 under our key
}

// insertRefund is transaction 1. It holds the order's row from the look at what
// is left of it until the refund is inserted, so refunds that race see each
// other: together they never promise more than was charged.
//
// A refusal is an error, not an answer: the claim is rolled back with it, and
// the key was not used.
func (g *givingBack) insertRefund(ctx context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
	params, err := DecodeRefundParams(g.run.Params)
	if err != nil {
		return idempotency.Outcome{}, err
	}
	o, err := lockOrderTx(ctx, tx, g.run.AccountID, g.orderID)
	if err != nil {
		return idempotency.Outcome{}, err
	}
	promised, err := promisedTx(ctx, tx, g.run, g.orderID)
	if err != nil {
		return idempotency.Outcome{}, err
	}
	amount, err := o.refundable(params.Amount, promised)
	if err != nil {
		return idempotency.Outcome{}, err
	}
	r := Refund{
		ID:        refundID(g.run.AccountID, g.run.Key),
		OrderID:   g.orderID,
		Amount:    amount,
		Currency:  o.currency,
		Status:    RefundPending,
		CreatedAt: g.run.CreatedAt,
	}
	if params.Reason != "" {
		r.Reason = &params.Reason
	}
	insertRefundTx(tx, g.run, r)
	err = auditTx(tx, g.run.AccountID, r.ID, "refund.created",
		map[string]any{"order_id": r.OrderID, "amount": r.Amount, "currency": r.Currency, "reason": r.Reason}, g.clientIP, r.CreatedAt)
	return idempotency.Advance(pointRefundCreated), err
}

// lockedOrder is what a refund has to know of its order.
type lockedOrder struct {
	status   Status
	amount   int64
	currency string
}

// refundable is the amount of a refund that was asked for, 0 for all that is
// left, when other refunds hold what is promised.
func (o lockedOrder) refundable(asked, promised int64) (int64, error) {
	left := o.amount - promised
	switch {
	case o.status == StatusPending || o.status == StatusPaymentFailed:
		return 0, invalid("", "the order is not paid, so there is nothing to refund")
	case left <= 0:
		return 0, invalid("", "the order is refunded already, or will be when its refunds are made")
	case asked == 0:
		return left, nil
	case asked > left:
		return 0, invalid("/amount", fmt.Sprintf("must be at most %d, which is what is left to refund", left))
	default:
		return asked, nil
	}
}

func invalid(pointer, message string) error {
	return &ValidationError{Fields: []FieldError{{Pointer: pointer, Message: message}}}
}

// recordRefund is transaction 2.
func (g *givingBack) recordRefund(ctx context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
	if g.kept500 {
		setProviderFailedTx(tx, g.run.AccountID, g.row.ID, g.run.Now())
		return idempotency.Advance(pointRefundCreated), nil
	}
	if g.failure != nil {
		return g.recordFailure(ctx, tx)
	}
	refunded := g.row.Refund
	refunded.Status, refunded.RefundID = RefundStatus(g.made.Status), &g.made.ID
	response, err := created(refunded.href(), refunded)
	if err != nil {
		return idempotency.Outcome{}, err
	}
	err = applyRefundStatusTx(tx, g.run.AccountID, g.row, g.made, g.clientIP, g.run.Now())
	return idempotency.Finish(response), err
}

// recordFailure stores the answer of a refund that is not made and never will
// be, and lets go of its amount.
func (g *givingBack) recordFailure(ctx context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
	response, err := g.failure.response(g.row.OrderID)
	if err != nil {
		return idempotency.Outcome{}, err
	}
	if g.made.ID != "" { // it failed at the provider
		err = applyRefundStatusTx(tx, g.run.AccountID, g.row, g.made, g.clientIP, g.run.Now())
		return idempotency.Finish(response), err
	}
	if err := failRefundTx(ctx, tx, g.run.AccountID, g.row.ID, g.failure.code); err != nil {
		return idempotency.Outcome{}, err
	}
	err = auditTx(tx, g.run.AccountID, g.row.ID, "refund.failed", map[string]any{"code": g.failure.code}, g.clientIP, g.run.Now())
	return idempotency.Finish(response), err
}
