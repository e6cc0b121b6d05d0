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
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const (
	maxConnections = 20
	maxWorkers     = 100

	// The default cooldown between two fetches, 100 ms, would be most of an order's latency.
	fetchCooldown = 5 * time.Millisecond

	defaultTimeout = "30s"            // of a job, which may then be rescued; LOCK_TIMEOUT sets another
	waitTimeout    = 30 * time.Second // of a client
	pollInterval   = time.Second      // for orders that another process charges
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("the server has failed", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	config.MaxConns = maxConnections
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, schema); err != nil {
		return err
	}

	timeout, err := time.ParseDuration(cmp.Or(os.Getenv("LOCK_TIMEOUT"), defaultTimeout))
	if err != nil {
		return err
	}
	s := &server{pool: pool, waiting: map[uuid.UUID][]chan result{}}
	workers := river.NewWorkers()
	river.AddWorker(workers, &chargeWorker{server: s, stripe: newStripe()})
	s.river, err = river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:               map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: maxWorkers}},
		Workers:              workers,
		FetchCooldown:        fetchCooldown,
		JobTimeout:           timeout,
		RescueStuckJobsAfter: timeout,
		Logger:               slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	if err := s.river.Start(ctx); err != nil {
		return err
	}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /v1/orders", s.createOrder)
	api := &http.Server{Addr: cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8080"), Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = api.Shutdown(context.WithoutCancel(ctx)) })
	if err := api.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
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
	waiting map[uuid.UUID][]chan result // by order
}

func (s *server) createOrder(w http.ResponseWriter, r *http.Request) {
	o, err := parseOrder(w, r)
	if err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), waitTimeout)
	defer cancel()
	found, err := s.start(ctx, o)
	switch {
	case err != nil:
		slog.WarnContext(ctx, "the order is not finished", "error", err)
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusServiceUnavailable, "send the same request again")
	case !bytes.Equal(found.Hash, o.Hash):
		problem(w, http.StatusUnprocessableEntity, "the key belongs to another request")
	default:
		respond(w, o, found)
	}
}

// start stores the order and its job, or finds those of an earlier request. It returns the
// order's result when it is final.
func (s *server) start(ctx context.Context, o order) (r result, err error) {
	finished, leave := s.wait(o.ID)
	defer leave()
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if r, err = insertOrder(ctx, tx, o); err != nil || r.Status != statusPending {
			return err
		}
		_, err = s.river.InsertTx(ctx, tx, chargeArgs{OrderID: o.ID}, nil)
		return err
	})
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for err == nil && r.Status == statusPending {
		select {
		case r = <-finished:
		case <-poll.C:
			r, err = readResult(ctx, s.pool, o.ID)
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return r, err
}

// wait returns a channel for the result, if a worker of this process finishes the order.
func (s *server) wait(id uuid.UUID) (finished <-chan result, leave func()) {
	waiter := make(chan result, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[id] = append(s.waiting[id], waiter)
	return waiter, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waiting[id] = slices.DeleteFunc(s.waiting[id], func(c chan result) bool { return c == waiter })
		if len(s.waiting[id]) == 0 {
			delete(s.waiting, id)
		}
	}
}

func (s *server) wake(id uuid.UUID, r result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, waiter := range s.waiting[id] {
		select {
		case waiter <- r:
		default: // it was woken before
		}
	}
}
