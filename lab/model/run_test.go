// Package model_test replays histories of spec/model/payment.pml on the real program. Spin
// simulates the model at random and prints each action with the state after it. The test
// makes package orders, its engine, a real PostgreSQL and the fake Stripe do the same, action
// by action, and compares the state after each one.
//
// A run of the model is a call of [orderstest.Shop.Create] that stops at gates: before each
// COMMIT, before the release that follows a lost COMMIT, and before each provider call. An
// action of the model opens the gate of its run, and lets it continue to the next one. Since
// the gate must be the one that the model's next action needs, the test also compares what
// the program is about to do. Reads that belong to one action of the model have one gate.
//
//   - A crash: neither the database nor the provider hears of the run again.
//   - A lost COMMIT: package proxytest breaks the connection.
//   - A lost call: the run gets an error, and the fake gets the call at once or later.
//   - A cancel: its first transaction, after which its process dies, and later another cancel.
//   - Time: the clocks of the database, the engine and the fake move forward together.
//   - Lost rows: the rows of the standby are written back.
//
// What the model decides at random is arranged: the card of an intent, the intents that the
// provider's search does not find yet, and when the provider forgets a key.
//
// A plain go test replays testdata/traces.txt. make -C lab traces simulates and replays
// 10,000 other histories, and needs Spin:
//
//	go -C lab/model test -run '^TestTraces$' -args -simulate=10000 -seed=1000
//
// All actions are replayed. Histories are simulated with -DTRACES: no key of the provider is
// remembered for a second day, because the fake forgets keys after 24 hours.
package model_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/migrations/dbtest"
)

// The gates of a run, at which the model's next action finds it.
const (
	atCommit  = "COMMIT"
	atRelease = "the release after a lost COMMIT"
	atSearch  = "search"
	atCreate  = "create"
	atRead    = "read"
	atConfirm = "confirm"
	atCancel  = "cancel"
	ended     = "end"
)

const timeout = 30 * time.Second

type runKey struct{}

type execute func(context.Context, idempotency.Request) (idempotency.Result, error)

// A run is a call of [orderstest.Shop.Create] or [orderstest.Shop.Cancel].
type run struct {
	at      string // the gate, or ended
	reached chan string
	opened  chan struct{}
	done    chan struct{}
	result  idempotency.Result
	err     error

	last    atomic.Bool // it crashes after the statement at the gate
	dead    atomic.Bool // crashed: it has no effect any more
	offline atomic.Bool // its provider calls fail
	unknown atomic.Bool // its COMMIT was lost
	reading atomic.Bool // reads belong to the present action
	verdict verdict     // on the provider call at the gate
	hidden  []string    // from its searches
}

// A verdict is what happens to a provider call.
type verdict int

const (
	answered verdict = iota
	lost             // executed, but the response is lost
	delayed          // not executed yet, and the run gets no response
)

func runOf(ctx context.Context) *run {
	r, _ := ctx.Value(runKey{}).(*run)
	return r
}

func startRun(ctx context.Context, execute execute, request idempotency.Request) *run {
	r := &run{reached: make(chan string), opened: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.result, r.err = execute(context.WithValue(ctx, runKey{}, r), request)
	}()
	return r
}

// await returns when the run is at its next gate, or has ended.
func (r *run) await(t testing.TB) {
	t.Helper()
	select {
	case r.at = <-r.reached:
	case <-r.done:
		r.at = ended
	case <-time.After(timeout):
		require.Fail(t, "the run does not continue", "after %s", r.at)
	}
}

// open lets the run continue to its next gate.
func (r *run) open(t testing.TB) {
	t.Helper()
	r.opened <- struct{}{}
	r.await(t)
}

// crash ends the run without an effect.
func (r *run) crash(t testing.TB) {
	t.Helper()
	r.dead.Store(true)
	for r.at != ended {
		r.open(t)
	}
}

// stop is called by the run at a gate.
func (r *run) stop(at string) {
	if !r.dead.Load() {
		r.reading.Store(false)
		r.reached <- at
		<-r.opened
	}
}

var errCrashed = errors.New("the process has crashed")

// gates is a pgx tracer, in which runs stop before a COMMIT, and before the release after one that was lost.
type gates struct{}

func (gates) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	queries := data.Batch.QueuedQueries
	return stopAt(ctx, atCommit, queries[len(queries)-1].SQL == "COMMIT")
}

func (gates) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (gates) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func (gates) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	r := runOf(ctx)
	released := r != nil && strings.Contains(data.SQL, "action_required_at = now() + $5") && r.unknown.CompareAndSwap(true, false)
	return stopAt(ctx, atRelease, released)
}

func (gates) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// stopAt returns the statement's context, which is at its end if the run is dead.
func stopAt(ctx context.Context, gate string, stops bool) context.Context {
	r := runOf(ctx)
	if r == nil {
		return ctx
	}
	if stops {
		r.stop(gate)
	}
	if stops && r.last.Load() {
		r.dead.Store(true)
		return ctx
	}
	if r.dead.Load() {
		crashed, cancel := context.WithCancelCause(ctx)
		cancel(errCrashed)
		return crashed
	}
	return ctx
}

var (
	simulate = flag.Int("simulate", 0, "replay this many new traces, which needs Spin")
	seed     = flag.Int("seed", 1, "of the first new trace")
	update   = flag.Bool("update", false, "write testdata/traces.txt, which needs Spin")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(dbtest.Main{M: m}.Run())
}
