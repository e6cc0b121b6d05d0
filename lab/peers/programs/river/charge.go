package main

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"example.com/orders-api/lab/peers/programs/shop"
)

type chargeArgs struct {
	OrderID uuid.UUID `json:"order_id"`
}

func (chargeArgs) Kind() string { return "charge_order" }

func (chargeArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}}
}

// chargeWorker charges an order. It stores the intent before it confirms it, so a later
// attempt continues with the same intent.
type chargeWorker struct {
	river.WorkerDefaults[chargeArgs]
	server *server
	stripe shop.Provider
}

func (w *chargeWorker) Work(ctx context.Context, job *river.Job[chargeArgs]) error {
	pool := w.server.pool
	o, r, err := readOrder(ctx, pool, job.Args.OrderID)
	if err != nil || r.Status != shop.StatusPending {
		return err
	}
	if r.IntentID == "" {
		if r.IntentID, err = w.stripe.Create(ctx, o); err != nil {
			return err
		}
		if _, err := pool.Exec(ctx, "UPDATE orders SET payment_intent_id = $2 WHERE id = $1", o.ID, r.IntentID); err != nil {
			return err
		}
	}
	if r, err = w.stripe.Confirm(ctx, o, r.IntentID); err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := shop.Finish(ctx, tx, o.ID, r); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
	if err == nil {
		w.server.wake(o.ID, r)
	}
	return err
}

// readOrder reads what the calls to Stripe require, and how far the order has come.
func readOrder(ctx context.Context, db shop.Database, id uuid.UUID) (o shop.Order, r shop.Result, err error) {
	err = db.QueryRow(ctx, `
		SELECT id, idempotency_key, params_hash, currency, amount, payment_method, status, coalesce(payment_intent_id, '')
		  FROM orders
		 WHERE id = $1`, id).
		Scan(&o.ID, &o.Key, &o.Hash, &o.Currency, &o.Amount, &o.PaymentMethod, &r.Status, &r.IntentID)
	return o, r, err
}
