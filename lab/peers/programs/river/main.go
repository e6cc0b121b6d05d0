// Command river serves orders as unique jobs of River, https://riverqueue.com.
//
// Its authors recommend to insert a job in the transaction that makes it necessary
// (/docs/transactional-enqueueing), to guard it with a unique key (/docs/unique-jobs), and to
// complete it in the transaction of its last write (/docs/transactional-job-completion). So
// the handler commits the pending order and its job together, and waits until a worker in the
// same process has charged the order. A retry finds the order by its Idempotency-Key. If the
// order is still pending, the retry inserts the job again, which River skips as a duplicate
// unless the job was discarded.
//
// River runs a job at least once (/docs/reliable-workers), so all calls to Stripe have keys
// derived from the order. A job of a killed process is "running" until River rescues it
// (/docs/maintenance-services). The default of one hour is shortened to 30 seconds here.
package main

import (
	"cmp"
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"example.com/orders-api/lab/peers/programs/shop"
)

const (
	maxWorkers = 100

	// The default cooldown between two fetches, 100 ms, would be most of an order's latency.
	fetchCooldown = 5 * time.Millisecond

	defaultTimeout = "30s"       // of a job, which may then be rescued; LEASE_DURATION sets another
	pollInterval   = time.Second // for orders that another process charges
)

func main() { shop.Main(run) }

func run(ctx context.Context, pool *pgxpool.Pool) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	timeout, err := time.ParseDuration(cmp.Or(os.Getenv("LEASE_DURATION"), defaultTimeout))
	if err != nil {
		return err
	}
	s := &server{pool: pool, waiting: map[uuid.UUID][]chan shop.Result{}}
	workers := river.NewWorkers()
	river.AddWorker(workers, &chargeWorker{server: s, stripe: shop.NewProvider(0)})
	s.river, err = river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:               map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: maxWorkers}},
		Workers:              workers,
		FetchCooldown:        fetchCooldown,
		JobTimeout:           timeout,
		RescueStuckJobsAfter: timeout,
		Logger:               shop.Logger(),
	})
	if err != nil {
		return err
	}
	if err := s.river.Start(ctx); err != nil {
		return err
	}

	if err := shop.Serve(ctx, s.start); err != nil {
		return err
	}
	<-s.river.Stopped()
	return nil
}

// server creates orders, and waits until a worker has finished them.
type server struct {
	pool  *pgxpool.Pool
	river *river.Client[pgx.Tx]

	mu      sync.Mutex
	waiting map[uuid.UUID][]chan shop.Result // by order
}

// start stores the order and its job, or finds those of an earlier request. It returns the
// order's result when it is final.
func (s *server) start(ctx context.Context, o shop.Order) (r shop.Result, err error) {
	finished, leave := s.wait(o.ID)
	defer leave()
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if r, err = shop.Insert(ctx, tx, o); err != nil || r.Status != shop.StatusPending {
			return err
		}
		_, err = s.river.InsertTx(ctx, tx, chargeArgs{OrderID: o.ID}, nil)
		return err
	})
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for err == nil && r.Status == shop.StatusPending {
		select {
		case r = <-finished:
		case <-poll.C:
			r, err = shop.Read(ctx, s.pool, o.ID)
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return r, err
}

// wait returns a channel for the result, if a worker of this process finishes the order.
func (s *server) wait(id uuid.UUID) (finished <-chan shop.Result, leave func()) {
	waiter := make(chan shop.Result, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[id] = append(s.waiting[id], waiter)
	return waiter, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waiting[id] = slices.DeleteFunc(s.waiting[id], func(c chan shop.Result) bool { return c == waiter })
		if len(s.waiting[id]) == 0 {
			delete(s.waiting, id)
		}
	}
}

func (s *server) wake(id uuid.UUID, r shop.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, waiter := range s.waiting[id] {
		select {
		case waiter <- r:
		default: // it was woken before
		}
	}
}

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
