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
// A server of Temporal is required, such as temporalserver beside this folder.
package main

import (
	"cmp"
	"context"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"example.com/orders-api/lab/peers/programs/shop"
)

const (
	taskQueue      = "orders"
	account        = "shop" // the only one here
	defaultTimeout = "10s"  // Temporal's of a workflow task; LEASE_DURATION sets another
)

func main() { shop.Main(run) }

func run(ctx context.Context, pool *pgxpool.Pool) error {
	temporal, err := client.DialContext(ctx, client.Options{
		HostPort: cmp.Or(os.Getenv("PEER_SERVER"), client.DefaultHostPort),
		Logger:   log.NewStructuredLogger(shop.Logger()),
	})
	if err != nil {
		return err
	}
	defer temporal.Close()
	w := worker.New(temporal, taskQueue, worker.Options{})
	w.RegisterWorkflow(orderWorkflow)
	w.RegisterActivity(&activities{pool: pool, stripe: shop.NewProvider(0)})
	if err := w.Start(); err != nil {
		return err
	}
	defer w.Stop()

	timeout, err := time.ParseDuration(cmp.Or(os.Getenv("LEASE_DURATION"), defaultTimeout))
	if err != nil {
		return err
	}
	s := &server{temporal: temporal, options: options{Local: os.Getenv("PEER_ACTIVITIES") == "", Timeout: timeout}}
	return shop.Serve(ctx, s.place)
}

type server struct {
	temporal client.Client
	options  options
}

func (s *server) place(ctx context.Context, o shop.Order) (found shop.Result, err error) {
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
	return found, err
}

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
