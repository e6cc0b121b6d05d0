package orders

import (
	"cmp"
	"context"
	"net/netip"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/operations"
	"example.com/orders-api/payments"
)

// Refund refunds an order or a part of it, or returns its key's stored response.
func (s *Service) Refund(ctx context.Context, order uuid.UUID, req operations.Request) (idempotency.Result, error) {
	return s.config.Engine.Do(ctx, req.Request, createRefund{Service: s, orderID: order, clientIP: req.ClientIP})
}

const pointRefundCreated idempotency.RecoveryPoint = "refund_created"

type createRefund struct {
	*Service
	orderID    uuid.UUID // only for the first step
	clientIP   netip.Addr
	resolution *resolution // set if an operator ends the refund
}

func (createRefund) Name() string { return "create_refund" }

func (op createRefund) Steps(run *idempotency.Run) idempotency.Steps {
	r := &refundRun{createRefund: op, Run: run}
	return idempotency.Steps{
		Start: r.insertRefund,
		At:    map[idempotency.RecoveryPoint]idempotency.StepFunc{pointRefundCreated: r.sendRefund},
	}
}

type refundRun struct {
	createRefund
	*idempotency.Run

	refund refundRow // see load
	sent   bool      // by this run
}

// insertRefund is transaction 1. It locks the order before it reads the remaining amount, so
// concurrent refunds never exceed the charge.
func (r *refundRun) insertRefund(ctx context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
	request, err := DecodeRefundRequest(r.Params)
	if err != nil {
		return idempotency.Transition{}, err
	}
	order, reserved, err := lockOrderTx(ctx, tx, r.AccountID, r.orderID)
	if err != nil {
		return idempotency.Transition{}, err
	}
	amount, err := order.refundable(request.Amount, reserved)
	if err != nil {
		return idempotency.Transition{}, err
	}
	refund := Refund{
		ID:       refundID(r.AccountID, r.Key),
		OrderID:  r.orderID,
		Amount:   amount,
		Currency: order.Currency,
		Reason:   request.Reason,
		Status:   payments.RefundPending,
	}
	insertRefundTx(tx, r.Run, refund)
	operations.AuditTx(tx, r.AccountID, refund.ID, "refund.created", map[string]any{
		"order_id": refund.OrderID, "amount": refund.Amount, "currency": refund.Currency, "reason": refund.Reason,
	}, r.clientIP)
	return idempotency.Advance(pointRefundCreated), nil
}

// sendRefund refunds the money. Another provider key would be a second refund, so it is never
// rotated. The provider forgets it after a day, so the step lists the intent's refunds first (R12).
func (r *refundRun) sendRefund(ctx context.Context) (idempotency.RecordFunc, error) {
	ctx, cancel := r.stepContext(ctx)
	defer cancel()
	if err := r.load(ctx); err != nil {
		return nil, err
	}
	switch found, failed := r.findRefund(ctx); {
	case failed != nil && r.first():
		return nil, r.retryLater(operations.ErrProviderUnavailable, failed)
	case failed != nil:
		return nil, r.retryLater(operations.ErrOutcomeUnknown, failed)
	case found.ID != "":
		return r.recordRefund(found)
	case r.providerReplaysError():
		return nil, r.retryLater(operations.ErrOutcomeUnknown, &payments.Error{Code: "saved_500", RetryAfter: storedErrorRetryAfter})
	case r.resolution != nil:
		return r.resolve()
	default:
		return r.send(ctx)
	}
}

func (r *refundRun) load(ctx context.Context) (err error) {
	if r.refund.ID == uuid.Nil {
		r.refund, err = findRefund(ctx, r.config.Pool, r.AccountID, refundID(r.AccountID, r.Key))
	}
	return mustExist(err, "the refund of key", r.KeyID)
}

// recordRefund is transaction 2.
func (r *refundRun) recordRefund(made payments.Refund) (idempotency.RecordFunc, error) {
	r.adoptRest(made)
	if !r.refund.matches(made) {
		return nil, r.retryLater(operations.ErrOutcomeUnknown, &payments.Error{NeedsOperator: true, Code: "not_our_refund"})
	}
	return func(_ context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
		applyRefundStatusTx(tx, r.AccountID, r.refund, made, r.clientIP)
		if made.Status.Void() {
			code := cmp.Or(made.FailureReason, "refund_"+string(made.Status))
			return refused(code, "The payment provider could not give the money back.").finish(r.refund.OrderID)
		}
		refunded := r.refund.Refund
		refunded.Status, refunded.ProviderRefundID = made.Status, &made.ID
		return operations.FinishCreated(refundPath(refunded.OrderID, refunded.ID), refunded)
	}, nil
}

// adoptRest reduces a refund of the order's rest to what was refunded: after lost rows, another
// refund may not be recorded yet.
func (r *refundRun) adoptRest(made payments.Refund) {
	request, err := DecodeRefundRequest(r.Params)
	if err == nil && request.Amount == 0 && made.Amount < r.refund.Amount {
		r.refund.Amount = made.Amount
	}
}

// recordFailure is the transaction 2 of a refund that the provider does not have.
func (r *refundRun) recordFailure(why storedProblem) idempotency.RecordFunc {
	return func(ctx context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
		if err := failRefundTx(ctx, tx, r.AccountID, r.refund.ID, why.Code); err != nil {
			return idempotency.Transition{}, err
		}
		operations.AuditTx(tx, r.AccountID, r.refund.ID, "refund.failed", map[string]any{"code": why.Code}, r.clientIP)
		return why.finish(r.refund.OrderID)
	}
}
