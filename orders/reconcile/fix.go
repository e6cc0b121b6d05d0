package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/operations"
	"example.com/orders-api/operations/audit"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
)

func (r *run) fix(ctx context.Context, intents *comparison[payments.Intent], refunds *comparison[payments.Refund]) {
	for i := range r.report.Discrepancies {
		d := &r.report.Discrepancies[i]
		var err error
		switch {
		case d.Kind == OrphanedIntent:
			// The key is random, because the provider may repeat a 500 under an earlier one.
			d.Fixed, err = intents.repair(ctx, *d, d.IntentID, func() error {
				_, err := r.Orders.Calls.Payments.Cancel(ctx, "orders-api-reconcile-"+uuid.NewString(), d.IntentID)
				return err
			})
		case d.Kind == RefundStatusChanged, d.Kind == UnrecordedRefund:
			d.Fixed, err = refunds.repair(ctx, *d, d.ProviderRefundID, func() error {
				return r.Changes.Sync(ctx, d.AccountID, d.OrderID)
			})
			if errors.Is(err, operations.ErrNotFound) {
				err = nil // its charge is another discrepancy
				d.Detail += ", order missing"
			}
		case r.LostRows && d.Local == (Money{}) && !d.keyExpired() && (d.Kind == UnrecordedCharge || d.Kind == OpenIntent):
			err = r.expireKey(ctx, intents, d) // the charge itself needs an operator
		default:
			continue
		}
		if err != nil {
			d.FixError = err.Error()
		}
		r.Orders.Calls.Logger.InfoContext(ctx, "reconcile: fix", "kind", d.Kind, "account_id", d.AccountID, "order_id", d.OrderID,
			"key_id", d.KeyID, "intent_id", d.IntentID, "fixed", d.Fixed, "error", d.FixError)
	}
}

// expireKey rejects retries of a charged order whose rows are lost (R17, used for ever): once the
// provider's keys have expired, they would charge again.
func (r *run) expireKey(ctx context.Context, intents *comparison[payments.Intent], d *Discrepancy) error {
	err := intents.verify(ctx, *d, d.IntentID)
	if err == nil {
		record := &pgx.Batch{}
		audit.WriteKeyTx(record, d.AccountID, d.KeyID, "key.expire", audit.Operator{Actor: r.Actor, Reason: "the rows of " + d.IntentID + " were lost"})
		err = r.Orders.Pool.SendBatch(ctx, record).Close()
	}
	if err == nil {
		err = r.Orders.Engine.ExpireLost(ctx, d.AccountID, d.KeyID, orders.Operation, orders.Path, d.Created)
	}
	if err == nil {
		d.Detail += keyExpired
	}
	return err
}

const keyExpired = ", key expired"

func (d Discrepancy) keyExpired() bool { return strings.HasSuffix(d.Detail, keyExpired) }

// markExpired adds to the detail of each lost charge whether an earlier run has expired its key, because
// an operator who refunds the charge must know it.
func (r *run) markExpired(ctx context.Context) error {
	var accountIDs, keyIDs []uuid.UUID
	for _, d := range r.report.Discrepancies {
		accountIDs, keyIDs = append(accountIDs, d.AccountID), append(keyIDs, d.KeyID)
	}
	expired, err := postgres.Collect(ctx, r.Orders.Pool, "read expired keys", pgx.RowTo[uuid.UUID], `
SELECT id
  FROM idempotency_keys
  JOIN unnest($1::uuid[], $2::uuid[]) AS found (account_id, id)
 USING (account_id, id)
 WHERE lost`, accountIDs, keyIDs)
	for i := range r.report.Discrepancies {
		if d := &r.report.Discrepancies[i]; !d.isRefund() && slices.Contains(expired, d.KeyID) {
			d.Detail += keyExpired
		}
	}
	return err
}

// verify checks the discrepancy again, because a client may have retried since.
func (c *comparison[P]) verify(ctx context.Context, d Discrepancy, providerID string) error {
	kind, err := c.recheck(ctx, d.ids(), providerID)
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
func (c *comparison[P]) repair(ctx context.Context, d Discrepancy, providerID string, act func() error) (fixed bool, err error) {
	if err := c.verify(ctx, d, providerID); err != nil {
		return false, err
	}
	failed := act()
	kind, err := c.recheck(ctx, d.ids(), providerID)
	if err == nil && kind == "" {
		return true, nil
	}
	return false, cmp.Or(failed, err, fmt.Errorf("still %s", kind))
}
