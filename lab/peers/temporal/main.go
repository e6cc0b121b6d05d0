// Command temporal serves orders as workflows of Temporal, https://temporal.io.
//
// Its authors recommend to take the workflow's id from the business, so a second start with
// the same id finds the first (https://docs.temporal.io/workflow-execution/workflowid-runid),
// and to make activities idempotent, because an activity runs at least once
// (https://docs.temporal.io/activity-definition#idempotency). So the id is the Idempotency-Key,
// a running or finished workflow with it is never started again, and the handler waits for the
// workflow's result. The steps are local activities, which Temporal recommends for calls of a
// few seconds (https://docs.temporal.io/local-activity): a workflow needs one task instead of
// four. PEER_ACTIVITIES=1 makes them activities, which the server schedules and times out one
// by one.
//
// A server of Temporal is required, such as the program in the folder server.
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

	"github.com/jackc/pgx/v5/pgxpool"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
)

const (
	maxConnections = 20
	taskQueue      = "orders"
	account        = "shop" // the only one here
	defaultTimeout = "10s"  // Temporal's of a workflow task; LOCK_TIMEOUT sets another
	waitTimeout    = 30 * time.Second
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
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	temporal, err := client.DialContext(ctx, client.Options{
		HostPort: cmp.Or(os.Getenv("PEER_SERVER"), client.DefaultHostPort),
		Logger:   log.NewStructuredLogger(logger),
	})
	if err != nil {
		return err
	}
	defer temporal.Close()
	w := worker.New(temporal, taskQueue, worker.Options{})
	w.RegisterWorkflow(orderWorkflow)
	w.RegisterActivity(&activities{pool: pool, stripe: newStripe()})
	if err := w.Start(); err != nil {
		return err
	}
	defer w.Stop()

	timeout, err := time.ParseDuration(cmp.Or(os.Getenv("LOCK_TIMEOUT"), defaultTimeout))
	if err != nil {
		return err
	}
	s := &server{temporal: temporal, options: options{Local: os.Getenv("PEER_ACTIVITIES") == "", Timeout: timeout}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /v1/orders", s.createOrder)
	api := &http.Server{Addr: cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8080"), Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = api.Shutdown(context.WithoutCancel(ctx)) })
	if err := api.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

type server struct {
	temporal client.Client
	options  options
}

func (s *server) createOrder(w http.ResponseWriter, r *http.Request) {
	o, err := parseOrder(w, r)
	if err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), waitTimeout)
	defer cancel()
	var found result
	workflow, err := s.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                       account + "/" + o.Key,
		TaskQueue:                taskQueue,
		WorkflowIDReusePolicy:    enums.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowTaskTimeout:      s.options.Timeout, // the time of local activities, unless the worker extends it
		EnableEagerStart:         true,              // the worker in this process gets the first task
	}, orderWorkflow, o, s.options)
	if err == nil { // also for a workflow that exists
		err = workflow.Get(ctx, &found)
	}
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
