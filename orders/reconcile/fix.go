package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"example.com/orders-api/operations/audit"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
)

func (r *run) fix(ctx context.Context, intents *comparison[payments.Intent], refunds *comparison[payments.Refund]) {
	for i := range r.report.Discrepancies {
		d := &r.report.Discrepancies[i]
		var err error
		fixed := true
		switch d.Kind {
		case UnrecordedCharge, OpenIntent:
			if !r.LostRows || d.Local != (Money{}) {
				continue
			}
			fixed = false // the charge itself needs an operator
			if err = intents.verify(ctx, *d, d.IntentID); err == nil {
				err = r.expireKey(ctx, *d)
			}
			if err == nil {
				d.Detail += ", key expired"
			}
		case OrphanedIntent:
			err = intents.repair(ctx, *d, d.IntentID, func() error {
				// The key is random, because the provider may repeat a 500 under an earlier one.
				_, err := r.Payments.Cancel(ctx, "orders-api-reconcile-"+uuid.NewString(), d.IntentID)
				return err
			})
		case RefundStatusChanged:
			err = refunds.repair(ctx, *d, d.ProviderRefundID, func() error {
				_, err := r.Operations.Sync(ctx, "refund", d.AccountID, d.RefundID, d.ProviderRefundID)
				return err
			})
		default:
			continue
		}
		d.Fixed = fixed && err == nil
		if err != nil {
			d.FixError = err.Error()
		}
		r.Logger.InfoContext(ctx, "reconcile: fix", "kind", d.Kind, "account_id", d.AccountID, "order_id", d.OrderID,
			"key_id", d.KeyID, "intent_id", d.IntentID, "fixed", d.Fixed, "error", d.FixError)
	}
}

// expireKey rejects retries of a charged order whose rows are lost (R17, a key never executes
// twice): once the provider's keys have expired, they would charge again.
func (r *run) expireKey(ctx context.Context, d Discrepancy) error {
	by := audit.Operator{Actor: r.Actor, Reason: "the rows of " + d.IntentID + " were lost"}
	if err := audit.WriteKey(ctx, r.Pool, d.AccountID, d.KeyID, "key.expire", by); err != nil {
		return err
	}
	return r.Engine.Expire(ctx, d.AccountID, d.KeyID, orders.Operation, orders.Path, d.Created)
}

// verify checks the discrepancy again, because a client may have retried since.
func (c *comparison[P]) verify(ctx context.Context, d Discrepancy, providerID string) error {
	kind, err := c.recheck(ctx, providerID)
	switch {
	case err != nil:
		return err
	case kind != d.Kind:
		return errors.New("it has changed since it was listed")
	case !c.hasAccount(d.AccountID):
		return errors.New("the account is unknown, so the intent may belong to another database")
	default:
		return nil
	}
}

// repair acts, and then checks again, because the response may be lost although the act succeeded.
func (c *comparison[P]) repair(ctx context.Context, d Discrepancy, providerID string, act func() error) error {
	if err := c.verify(ctx, d, providerID); err != nil {
		return err
	}
	failed := act()
	kind, err := c.recheck(ctx, providerID)
	if err == nil && kind == "" {
		return nil
	}
	return cmp.Or(failed, err, fmt.Errorf("still %s", kind))
}
