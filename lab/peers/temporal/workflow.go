package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.temporal.io/sdk/workflow"
)

// options of a workflow are part of its input, because a replay must decide the same.
type options struct {
	Local   bool          // activities
	Timeout time.Duration // of an attempt; then another one starts, also if the process has died
}

// orderWorkflow creates an order and charges it. Its history records each step's result.
func orderWorkflow(ctx workflow.Context, o order, opts options) (result, error) {
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
		r        result
		intentID string
	)
	if err := step(&r, a.StoreOrder, o); err != nil || r.Status != statusPending {
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
	stripe provider
}

// StoreOrder returns what became of an order that exists. Temporal forgets a workflow after
// the namespace's retention period, so a later request starts another one.
func (a *activities) StoreOrder(ctx context.Context, o order) (result, error) {
	return insertOrder(ctx, a.pool, o)
}

func (a *activities) CreateIntent(ctx context.Context, o order) (intentID string, err error) {
	return a.stripe.create(ctx, o)
}

// Charge confirms the intent, whose id is in the history by now, and stores the final state.
func (a *activities) Charge(ctx context.Context, o order, intentID string) (result, error) {
	r, err := a.stripe.confirm(ctx, o, intentID)
	if err != nil {
		return r, err
	}
	return r, finish(ctx, a.pool, o.ID, r)
}
