package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.temporal.io/sdk/workflow"

	"example.com/orders-api/lab/peers/programs/shop"
)

// options of a workflow are part of its input, because a replay must decide the same.
type options struct {
	Local   bool          // activities
	Timeout time.Duration // of an attempt; then another one starts, also if the process has died
}

// orderWorkflow creates an order and charges it. Its history records each step's result.
func orderWorkflow(ctx workflow.Context, o shop.Order, opts options) (shop.Result, error) {
	ctx = workflow.WithStartToCloseTimeout(ctx, opts.Timeout)
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: opts.Timeout})
	step := func(returned, activity any, args ...any) error {
		if opts.Local {
			return workflow.ExecuteLocalActivity(ctx, activity, args...).Get(ctx, returned)
		}
		return workflow.ExecuteActivity(ctx, activity, args...).Get(ctx, returned)
	}
	var (
		a        *activities // only its methods' names are used
		r        shop.Result
		intentID string
	)
	if err := step(&r, a.StoreOrder, o); err != nil || r.Status != shop.StatusPending {
		return r, err
	}
	if err := step(&intentID, a.CreateIntent, o); err != nil {
		return r, err
	}
	err := step(&r, a.Charge, o, intentID)
	return r, err
}

// activities may be repeated: each either finds its result or makes the same one again.
type activities struct {
	pool   *pgxpool.Pool
	stripe shop.Provider
}

// StoreOrder returns what became of an order that exists. Temporal forgets a workflow after
// the namespace's retention period, so a later request starts another one.
func (a *activities) StoreOrder(ctx context.Context, o shop.Order) (shop.Result, error) {
	return shop.Insert(ctx, a.pool, o)
}

func (a *activities) CreateIntent(ctx context.Context, o shop.Order) (intentID string, err error) {
	return a.stripe.Create(ctx, o)
}

// Charge confirms the intent, whose id is in the history by now, and stores the final state.
func (a *activities) Charge(ctx context.Context, o shop.Order, intentID string) (shop.Result, error) {
	r, err := a.stripe.Confirm(ctx, o, intentID)
	if err != nil {
		return r, err
	}
	return r, shop.Finish(ctx, a.pool, o.ID, r)
}
