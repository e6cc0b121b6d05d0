// Command dbos18 serves orders as workflows of DBOS Transact for Go, https://dbos.dev.
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
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	maxConnections = 20               // the default of DBOS
	waitTimeout    = 30 * time.Second // of a client
	pollInterval   = 50 * time.Millisecond
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
	if _, err := pool.Exec(ctx, schema); err != nil {
		return err
	}
	s := &server{pool: pool, stripe: newStripe()}
	s.dbos, err = dbos.NewContext(context.WithoutCancel(ctx), dbos.Config{
		AppName:      "orders",
		SystemDBPool: pool,
		Logger:       slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
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

	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /v1/orders", s.createOrder)
	api := &http.Server{Addr: cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8080"), Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = api.Shutdown(context.WithoutCancel(ctx)) })
	if err := api.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return dbos.Shutdown(s.dbos, waitTimeout)
}

type server struct {
	pool   *pgxpool.Pool
	stripe provider
	dbos   dbos.Context
	source *dbos.DataSource // nil: plain steps
}

// createOrder starts the key's workflow, or waits for the one that exists.
func (s *server) createOrder(w http.ResponseWriter, r *http.Request) {
	o, err := parseOrder(w, r)
	if err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	var found result
	handle, err := dbos.RunWorkflow(s.dbos, s.placeOrder, o, dbos.WithWorkflowID(o.Key))
	if err == nil {
		found, err = handle.GetResult(dbos.WithHandleTimeout(waitTimeout), dbos.WithHandlePollingInterval(pollInterval))
	}
	switch {
	case err != nil:
		slog.WarnContext(r.Context(), "the order is not finished", "error", err)
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusServiceUnavailable, "send the same request again")
	case !bytes.Equal(found.Hash, o.Hash):
		problem(w, http.StatusUnprocessableEntity, "the key belongs to another request")
	default:
		respond(w, o, found)
	}
}

// placeOrder is the workflow. A step that has a result is not repeated.
func (s *server) placeOrder(ctx dbos.Context, o order) (result, error) {
	r := result{Hash: o.Hash}
	err := s.write(ctx, "insert-order", insertOrder, o.ID, o.Key, o.Email, o.Currency, o.Amount, o.Items, o.Metadata, o.PaymentMethod)
	if err != nil {
		return r, err
	}
	r.IntentID, err = dbos.RunAsStep(ctx, func(ctx context.Context) (string, error) {
		return s.stripe.create(ctx, o)
	}, dbos.WithStepName("create-intent"), dbos.WithStepMaxRetries(maxRetries))
	if err != nil {
		return r, err
	}
	r.FailureCode, err = dbos.RunAsStep(ctx, func(ctx context.Context) (string, error) {
		return s.stripe.confirm(ctx, o, r.IntentID)
	}, dbos.WithStepName("confirm-intent"), dbos.WithStepMaxRetries(maxRetries))
	if err != nil {
		return r, err
	}
	if r.FailureCode != "" {
		return r, s.write(ctx, "mark-failed", markFailed, o.ID, r.IntentID, r.FailureCode)
	}
	return r, s.write(ctx, "mark-paid", markPaid, o.ID, r.IntentID)
}

const maxRetries = 10 // of a call to Stripe, with growing pauses

// write executes a statement as a step.
func (s *server) write(ctx dbos.Context, name, sql string, args ...any) error {
	if s.source == nil {
		_, err := dbos.RunAsStep(ctx, func(ctx context.Context) (bool, error) {
			_, err := s.pool.Exec(ctx, sql, args...)
			return true, err
		}, dbos.WithStepName(name), dbos.WithStepMaxRetries(maxRetries))
		return err
	}
	_, err := dbos.RunAsTransaction(ctx, s.source, func(ctx context.Context, tx dbos.Tx) (bool, error) {
		_, err := tx.Exec(ctx, sql, args...)
		return true, err
	}, dbos.WithStepName(name))
	return err
}
