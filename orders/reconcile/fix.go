package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"example.com/orders-api/payments"
)

// fix repairs the discrepancies that need no decision of an operator.
func (r *run) fix(ctx context.Context, intents *comparison[payments.Intent], refunds *comparison[payments.Refund]) {
	for i := range r.report.Discrepancies {
		d := &r.report.Discrepancies[i]
		var err error
		switch d.Kind {
		case OrphanedIntent:
			err = intents.repair(ctx, *d, d.IntentID, func() error {
				// A cancel may be repeated under any key. An earlier one may keep a 500 (R12).
				_, err := r.Payments.Cancel(ctx, "orders-api-reconcile-"+uuid.NewString(), d.IntentID)
				return err
			})
		case RefundStatusChanged:
			err = refunds.repair(ctx, *d, d.ProviderRefundID, func() error {
				return r.Orders.SyncRefund(ctx, d.AccountID, d.RefundID, d.ProviderRefundID)
			})
		default:
			continue
		}
		d.Fixed = err == nil
		if err != nil {
			d.FixError = err.Error()
		}
		r.Logger.InfoContext(ctx, "reconcile: fix", "kind", d.Kind, "account_id", d.AccountID, "order_id", d.OrderID,
			"key_id", d.KeyID, "intent_id", d.IntentID, "fixed", d.Fixed, "error", d.FixError)
	}
}

// repair checks the discrepancy again, because the client of a lost order may have
// retried since. Then it acts and checks the result: if the discrepancy is gone, a
// failed act has only lost its response.
func (c *comparison[P]) repair(ctx context.Context, d Discrepancy, providerID string, act func() error) error {
	kind, err := c.recheck(ctx, providerID)
	switch {
	case err != nil:
		return err
	case kind != d.Kind:
		return errors.New("it has changed since it was listed")
	case !c.hasAccount(d.AccountID):
		return errors.New("the account is unknown, so the intent may belong to another database")
	}
	failed := act()
	if kind, err = c.recheck(ctx, providerID); err == nil && kind == "" {
		return nil
	}
	return cmp.Or(failed, err, fmt.Errorf("still %s", kind))
}
