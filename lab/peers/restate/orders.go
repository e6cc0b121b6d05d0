package main

import (
	"github.com/jackc/pgx/v5/pgxpool"
	restate "github.com/restatedev/sdk-go"
)

// Orders is the service. Restate registers its exported methods as handlers.
type Orders struct {
	pool   *pgxpool.Pool
	stripe provider
}

// Place creates an order and charges it. A step that fails is repeated, and a step may be
// executed again if its process dies, so each finds its result or makes the same one again.
func (s *Orders) Place(ctx restate.Context, o order) (result, error) {
	// An order may exist, because Restate forgets a key after its retention.
	r, err := restate.Run(ctx, func(ctx restate.RunContext) (result, error) {
		return insertOrder(ctx, s.pool, o)
	}, restate.WithName("insert-order"))
	if err != nil || r.Status != statusPending {
		return r, err
	}
	intentID, err := restate.Run(ctx, func(ctx restate.RunContext) (string, error) {
		return s.stripe.create(ctx, o)
	}, restate.WithName("create-intent"))
	if err != nil {
		return r, err
	}
	// The intent's id is in the journal by now.
	return restate.Run(ctx, func(ctx restate.RunContext) (result, error) {
		r, err := s.stripe.confirm(ctx, o, intentID)
		if err != nil {
			return r, err
		}
		return r, finish(ctx, s.pool, o.ID, r)
	}, restate.WithName("charge"))
}
