package orders

import (
	"cmp"
	"context"
	"net/netip"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
)

// Refund refunds an order or a part of it, or returns the stored response of its key.
// Errors are those of Create, [ErrNotFound] without the order, [*NotRefundableError] and
// [*ExceedsRemainingError].
func (s *Service) Refund(ctx context.Context, order uuid.UUID, req Request) (idempotency.Result, error) {
	return s.Engine.Do(ctx, req.Request, createRefund{Service: s, orderID: order, clientIP: req.ClientIP})
}

const pointRefundCreated idempotency.RecoveryPoint = "refund_created"

type createRefund struct {
	*Service
	orderID    uuid.UUID // of the request; only the first step reads it
	clientIP   netip.Addr
	resolution *resolution // set if an operator ends the refund, see Service.Resolve
}

func (createRefund) Name() string { return "create_refund" }

func (op createRefund) Steps(run *idempotency.Run) idempotency.Steps {
	r := &refundRun{createRefund: op, Run: run}
	return idempotency.Steps{
		Start: r.insertRefund,
		From:  map[idempotency.RecoveryPoint]idempotency.Step{pointRefundCreated: r.sendRefund},
	}
}

type refundRun struct {
	createRefund
	*idempotency.Run

	refund refundRow // see load
	sent   bool      // by this run
}

// insertRefund is transaction 1. It locks the order's row before it reads the remaining
// amount, so concurrent refunds never reserve more than was charged. An error rolls the
// claim back.
func (r *refundRun) insertRefund(ctx context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
	params, err := DecodeRefundParams(r.Params)
	if err != nil {
		return idempotency.Outcome{}, err
	}
	order, reserved, err := lockOrderTx(ctx, tx, r.AccountID, r.orderID)
	if err != nil {
		return idempotency.Outcome{}, err
	}
	amount, err := order.refundable(params.Amount, reserved)
	if err != nil {
		return idempotency.Outcome{}, err
	}
	refund := Refund{
		ID:       refundID(r.AccountID, r.Key),
		OrderID:  r.orderID,
		Amount:   amount,
		Currency: order.Currency,
		Reason:   params.Reason,
		Status:   payments.RefundPending,
	}
	insertRefundTx(tx, r.Run, refund)
	auditTx(tx, r.AccountID, refund.ID, "refund.created", map[string]any{
		"order_id": refund.OrderID, "amount": refund.Amount, "currency": refund.Currency, "reason": refund.Reason,
	}, r.clientIP)
	return idempotency.Advance(pointRefundCreated), nil
}

// sendRefund refunds the money. A refund under another provider key would be a second
// one, so the key is never rotated, and the provider forgets it after a day (R12). So the
// step always lists the intent's refunds first. That covers a lost response, an expired
// provider key and a restored database. Transaction 2 records the result.
func (r *refundRun) sendRefund(ctx context.Context) (idempotency.Record, error) {
	ctx, cancel := r.stepContext(ctx)
	defer cancel()
	if err := r.load(ctx); err != nil {
		return nil, err
	}
	switch found, failed := r.findRefund(ctx); {
	case failed != nil && failed.IntentMissing && r.resolution != nil:
		return r.resolve()
	case failed != nil && r.first():
		return nil, r.retryLater(ErrProviderUnavailable, failed)
	case failed != nil:
		return nil, r.retryLater(ErrOutcomeUnknown, failed)
	case found.ID != "":
		return r.recordRefund(found)
	case r.providerReplaysError():
		// The key would return the same error. The list shows whether the refund was made.
		return nil, r.retryLater(ErrOutcomeUnknown, &payments.Error{Code: "saved_500", RetryAfter: storedErrorRetryAfter})
	case r.resolution != nil:
		return r.resolve()
	default:
		return r.send(ctx)
	}
}

func (r *refundRun) load(ctx context.Context) (err error) {
	if r.refund.ID == uuid.Nil {
		r.refund, err = findRefund(ctx, r.Pool, r.AccountID, refundID(r.AccountID, r.Key))
	}
	return mustExist(err, "the refund of key", r.KeyID)
}

// recordRefund verifies the refund that the provider has. Transaction 2 records its status
// and stores the response.
func (r *refundRun) recordRefund(made payments.Refund) (idempotency.Record, error) {
	r.adoptRest(made)
	if !r.refund.matches(made) {
		return nil, r.retryLater(ErrOutcomeUnknown, &payments.Error{NeedsOperator: true, Code: "not_our_refund"})
	}
	return func(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
		applyRefundStatusTx(tx, r.AccountID, r.refund, made, r.clientIP)
		if made.Status.Void() {
			code := cmp.Or(made.FailureReason, "refund_"+string(made.Status))
			return refused(code, "The payment provider could not give the money back.").finish(r.refund.OrderID)
		}
		refunded := r.refund.Refund
		refunded.Status, refunded.ProviderRefundID = made.Status, &made.ID
		return finishCreated(RefundPath(refunded.OrderID, refunded.ID), refunded)
	}, nil
}

// adoptRest reduces a refund of the order's rest to what the provider has refunded. After
// lost rows the rest may be larger than it was, because another lost refund is not recorded
// again yet.
func (r *refundRun) adoptRest(made payments.Refund) {
	params, err := DecodeRefundParams(r.Params)
	if err == nil && params.Amount == 0 && made.Amount < r.refund.Amount {
		r.refund.Amount = made.Amount
	}
}

// recordFailure stores the response of a refund that the provider does not have, and
// releases its amount.
func (r *refundRun) recordFailure(why failure) idempotency.Record {
	return func(ctx context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
		if err := failRefundTx(ctx, tx, r.AccountID, r.refund.ID, why.Code); err != nil {
			return idempotency.Outcome{}, err
		}
		auditTx(tx, r.AccountID, r.refund.ID, "refund.failed", map[string]any{"code": why.Code}, r.clientIP)
		return why.finish(r.refund.OrderID)
	}
}
