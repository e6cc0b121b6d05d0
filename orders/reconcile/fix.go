package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/internal/audit"
	"example.com/orders-api/orders"
)

// fix ends what no job can end.
func (r *run) fix(ctx context.Context) error {
	for _, d := range r.found {
		var err error
		switch {
		case d.Kind == OrphanedIntent:
			d.Fixed, err = r.cancel(ctx, *d)
		case r.LostRows && d.Local == (Money{}) && !strings.HasSuffix(d.Detail, keyExpired) && (d.Kind == UnrecordedCharge || d.Kind == OpenIntent):
			err = r.expireKey(ctx, d) // the charge itself needs an operator
		default:
			continue
		}
		if err != nil {
			d.FixError = err.Error()
		}
	}
	return nil
}

// expireKey rejects retries of a charged order whose rows are lost (R17, used for ever): once the
// provider's keys have expired, they would charge again.
func (r *run) expireKey(ctx context.Context, d *Discrepancy) error {
	err := r.verify(ctx, *d)
	if err == nil {
		record := &pgx.Batch{}
		audit.WriteKeyTx(record, d.AccountID, d.KeyID, "key.expire", audit.Operator{Actor: r.Actor, Reason: "the rows of " + d.IntentID + " were lost"})
		err = r.Orders.Pool.SendBatch(ctx, record).Close()
	}
	if err == nil {
		err = r.Orders.Engine.ExpireLost(ctx, d.AccountID, d.KeyID, orders.CreateOperation, orders.Path, d.Created)
	}
	if err == nil {
		d.Detail += ", " + keyExpired
	}
	return err
}

const (
	keyExpired     = "key expired"
	unknownAccount = "unknown account"
)

// verify compares again, because a client may have retried since.
func (r *run) verify(ctx context.Context, d Discrepancy) error {
	now, _, err := r.compareAgain(ctx, d)
	switch {
	case err != nil:
		return err
	case now.Kind != d.Kind:
		return errors.New("it has changed since it was listed")
	case !r.hasAccount(d.AccountID):
		return errors.New("the account is unknown, so the intent may belong to another database")
	default:
		return nil
	}
}

// cancel cancels an intent, and then compares again, because the response may be lost although the intent is
// cancelled.
func (r *run) cancel(ctx context.Context, d Discrepancy) (fixed bool, err error) {
	if err := r.verify(ctx, d); err != nil {
		return false, err
	}
	// The key is random, because the provider may repeat a 500 under an earlier one.
	_, failed := r.Orders.Payments.Cancel(ctx, "orders-api-reconcile-"+uuid.NewString(), d.IntentID)
	now, decided, err := r.compareAgain(ctx, d)
	if decided && now.Kind == "" {
		return true, nil
	}
	return false, cmp.Or(failed, err, fmt.Errorf("still %s", now.Kind))
}
