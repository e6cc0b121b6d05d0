// Command dbos serves orders as workflows of DBOS Transact for Go, https://dbos.dev.
//
// Its authors recommend to use an idempotency key as the workflow's id, so a second start with
// the same id returns the first one's result, and to put each external call into a step of its
// own, with retries (https://docs.dbos.dev/golang/tutorials/workflow-tutorial and
// step-tutorial). After a restart, Launch continues the workflows of this executor.
//
// The writes of an order are transactions that DBOS commits together with the step's result
// (dbos.RunAsTransaction); on the pool of DBOS itself this takes one commit. PEER_STEPS=1
// makes them plain steps, which write the order and the result in two commits.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/lab/peers/programs/shop"
)

const (
	waitTimeout  = 30 * time.Second // of a client
	pollInterval = 50 * time.Millisecond
)

func main() { shop.Main(run) }

func run(ctx context.Context, pool *pgxpool.Pool) (err error) {
	s := &server{pool: pool, stripe: shop.NewProvider(0)}
	s.dbos, err = dbos.NewContext(context.WithoutCancel(ctx), dbos.Config{
		AppName:      "orders",
		SystemDBPool: pool,
		Logger:       shop.Logger(),
	})
	if err != nil {
		return err
	}
	if os.Getenv("PEER_STEPS") == "" {
		if s.source, err = dbos.NewDataSource(s.dbos, pool); err != nil {
			return err
		}
	}
	dbos.RegisterWorkflow(s.dbos, s.placeOrder, dbos.WithWorkflowName("place-order"))
	if err := dbos.Launch(s.dbos); err != nil {
		return err
	}

	if err := shop.Serve(ctx, s.createOrder); err != nil {
		return err
	}
	return dbos.Shutdown(s.dbos, waitTimeout)
}

type server struct {
	pool   *pgxpool.Pool
	stripe shop.Provider
	dbos   dbos.Context
	source *dbos.DataSource // nil: plain steps
}

// createOrder starts the key's workflow, or waits for the one that exists.
func (s *server) createOrder(_ context.Context, o shop.Order) (found shop.Result, err error) {
	handle, err := dbos.RunWorkflow(s.dbos, s.placeOrder, o, dbos.WithWorkflowID(o.Key))
	if err != nil {
		return found, err
	}
	return handle.GetResult(dbos.WithHandleTimeout(waitTimeout), dbos.WithHandlePollingInterval(pollInterval))
}

// placeOrder is the workflow. A step that has a result is not repeated.
func (s *server) placeOrder(ctx dbos.Context, o shop.Order) (shop.Result, error) {
	r, err := s.write(ctx, "insert-order", func(ctx context.Context, db shop.Database) (shop.Result, error) {
		return shop.Insert(ctx, db, o)
	})
	if err != nil || r.Status != shop.StatusPending {
		return r, err
	}
	intentID, err := dbos.RunAsStep(ctx, func(ctx context.Context) (string, error) {
		return s.stripe.Create(ctx, o)
	}, dbos.WithStepName("create-intent"), dbos.WithStepMaxRetries(maxRetries))
	if err != nil {
		return r, err
	}
	r, err = dbos.RunAsStep(ctx, func(ctx context.Context) (shop.Result, error) {
		return s.stripe.Confirm(ctx, o, intentID)
	}, dbos.WithStepName("confirm-intent"), dbos.WithStepMaxRetries(maxRetries))
	if err != nil {
		return r, err
	}
	return s.write(ctx, "finish-order", func(ctx context.Context, db shop.Database) (shop.Result, error) {
		return r, shop.Finish(ctx, db, o.ID, r)
	})
}

const maxRetries = 10 // of a call to Stripe, with growing pauses

// write executes a write as a step. It can be repeated, because a step runs at least once.
func (s *server) write(ctx dbos.Context, name string, do func(context.Context, shop.Database) (shop.Result, error)) (shop.Result, error) {
	if s.source == nil {
		return dbos.RunAsStep(ctx, func(ctx context.Context) (shop.Result, error) {
			return do(ctx, s.pool)
		}, dbos.WithStepName(name), dbos.WithStepMaxRetries(maxRetries))
	}
	return dbos.RunAsTransaction(ctx, s.source, func(ctx context.Context, tx dbos.Tx) (shop.Result, error) {
		return do(ctx, transaction{tx})
	}, dbos.WithStepName(name))
}

// transaction has the methods of pgx.
type transaction struct{ tx dbos.Tx }

func (t transaction) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	r, err := t.tx.Exec(ctx, sql, args...)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	n, err := r.RowsAffected()
	return pgconn.NewCommandTag(fmt.Sprintf("INSERT 0 %d", n)), err
}

func (t transaction) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return t.tx.QueryRow(ctx, sql, args...)
}
