package idempotency_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/migrations/dbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dbtest.Main{M: m}) }

const lockTimeout = time.Minute

// How long to wait, and how often to look, for what happens in the background.
const (
	patience = 10 * time.Second
	tick     = time.Millisecond
)

// bench is what a test of the engine works on.
type bench struct {
	t       testing.TB
	pool    *pgxpool.Pool
	engine  *idempotency.Engine
	account uuid.UUID
}

// newBench makes a bench. Its pool has a single connection unless a function
// changes that: a connection held across a foreign call, or a second one taken
// while one is held, would hang the test (R6).
func newBench(t testing.TB, configure ...func(*pgxpool.Config)) *bench {
	t.Helper()
	one := func(config *pgxpool.Config) { config.MaxConns = 1 }
	pool := idempotencytest.NewPool(t, append([]func(*pgxpool.Config){one}, configure...)...)
	return &bench{t: t, pool: pool, engine: newEngine(t, pool, time.Now), account: idempotencytest.Account(t, pool)}
}

func connections(n int32) func(*pgxpool.Config) {
	return func(config *pgxpool.Config) { config.MaxConns = n }
}

func sessionSetting(name, value string) func(*pgxpool.Config) {
	return func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams[name] = value }
}

func newEngine(t testing.TB, pool *pgxpool.Pool, clock func() time.Time) *idempotency.Engine {
	t.Helper()
	engine, err := idempotency.New(pool, idempotency.Config{
		LockTimeout: lockTimeout,
		Clock:       clock,
		Logger:      slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	return engine
}

// request is one under a new key.
func (b *bench) request() idempotency.Request {
	key, err := idempotency.ParseKey(rand.Text())
	require.NoError(b.t, err)
	return idempotency.Request{
		AccountID: b.account,
		Key:       key,
		Method:    "POST",
		Path:      "/v1/things",
		Params:    []byte(`{"amount":1200}`),
	}
}

func (b *bench) do(req idempotency.Request, op idempotency.Operation) (idempotency.Result, error) {
	return b.engine.Do(b.t.Context(), req, op)
}

func (b *bench) resume(req idempotency.Request, op idempotency.Operation) (idempotency.Result, error) {
	return b.engine.Resume(b.t.Context(), req.AccountID, idempotency.KeyID(req.AccountID, req.Key), only(op))
}

// only finds one operation.
func only(op idempotency.Operation) func(string) (idempotency.Operation, bool) {
	return func(name string) (idempotency.Operation, bool) {
		if name != op.Name() {
			return nil, false
		}
		return op, true
	}
}

// put makes the key of req and leaves it in a state.
func (b *bench) put(req idempotency.Request, op idempotency.Operation, state idempotencytest.State) {
	b.t.Helper()
	idempotencytest.PutKey(b.t, b.pool, req, op.Name(), state)
}

// row is everything the database holds of a key, byte for byte; empty when it
// holds nothing.
func (b *bench) row(req idempotency.Request) string {
	b.t.Helper()
	var row string
	err := b.pool.QueryRow(b.t.Context(), `
SELECT coalesce(max(k::text), '')
  FROM idempotency_keys k
 WHERE account_id = $1
   AND id = $2`, req.AccountID, idempotency.KeyID(req.AccountID, req.Key)).Scan(&row)
	require.NoError(b.t, err)
	return row
}

// keyState is the part of a key's row that tests ask for.
type keyState struct {
	Point     string
	Leased    bool
	Attempt   int
	LastError *string
}

func (b *bench) state(req idempotency.Request) keyState {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(), `
SELECT recovery_point AS point,
       locked_at IS NOT NULL AS leased,
       attempt,
       last_error
  FROM idempotency_keys
 WHERE account_id = $1
   AND id = $2`, req.AccountID, idempotency.KeyID(req.AccountID, req.Key))
	require.NoError(b.t, err)
	state, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[keyState])
	require.NoError(b.t, err)
	return state
}

// effects counts what steps have recorded for a request, by name.
func (b *bench) effects(req idempotency.Request) map[string]int {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(), `
SELECT action,
       count(*)
  FROM audit_records
 WHERE account_id = $1
   AND resource_id = $2
 GROUP BY action`, req.AccountID, string(req.Key))
	require.NoError(b.t, err)
	effects := map[string]int{}
	var action string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&action, &n}, func() error {
		effects[action] = n
		return nil
	})
	require.NoError(b.t, err)
	return effects
}

// requireIdle says that every connection is back in the pool and none of them
// has a transaction open.
func (b *bench) requireIdle() {
	b.t.Helper()
	// Closing one that cannot be used again goes on in the background.
	require.Eventually(b.t, func() bool { return b.pool.Stat().AcquiredConns() == 0 }, patience, tick)
	// The server may take a moment, too, to notice that one was closed.
	require.Eventually(b.t, func() bool {
		var open int
		err := b.pool.QueryRow(b.t.Context(), `
SELECT count(*)
  FROM pg_stat_activity
 WHERE datname = current_database()
   AND pid <> pg_backend_pid()
   AND state LIKE 'idle in transaction%'`).Scan(&open)
		return err == nil && open == 0
	}, patience, tick)
}

// operation is an operation made of functions.
type operation struct {
	name  string
	steps func(run *idempotency.Run) idempotency.Steps
}

func (o operation) Name() string { return o.name }

func (o operation) Steps(run *idempotency.Run) idempotency.Steps { return o.steps(run) }

type recordFunc = func(ctx context.Context, tx *idempotency.Tx) (idempotency.Outcome, error)

const insertEffect = `
INSERT INTO audit_records (
    id,
    account_id,
    action,
    resource_type,
    resource_id
) VALUES ($1, $2, $3, 'test', $4)`

// effect records something that a test can count. Its id is new each time, so
// nothing but the engine keeps it from being recorded twice.
func effect(tx *idempotency.Tx, run *idempotency.Run, name string) {
	tx.Queue(insertEffect, uuid.New(), run.AccountID, name, string(run.Key))
}

// recording is a step's Record that leaves one effect.
func recording(run *idempotency.Run, name string, outcome idempotency.Outcome) recordFunc {
	return func(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
		effect(tx, run, name)
		return outcome, nil
	}
}

// The recovery points of the test operations.
const (
	reserved idempotency.RecoveryPoint = "reserved"
	paid     idempotency.RecoveryPoint = "paid"
)

var errNoAnswer = errors.New("the provider did not answer")

// answer is a response that no two runs give alike.
func answer(run *idempotency.Run) idempotency.Response {
	return idempotency.Response{
		Status:  201,
		Headers: map[string]string{"Content-Type": "application/json", "Location": "/v1/things/" + run.KeyID.String()},
		Body:    fmt.Appendf(nil, `{"id":%q,"nonce":%q}`, run.KeyID, rand.Text()),
	}
}

// oneStep is the smallest operation.
func oneStep() operation {
	return operation{name: "one_step", steps: func(run *idempotency.Run) idempotency.Steps {
		return idempotency.Steps{
			idempotency.Started: {Record: func(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
				effect(tx, run, "done")
				return idempotency.Finish(answer(run)), nil
			}},
		}
	}}
}

// threeSteps is an operation with two foreign calls.
type threeSteps struct {
	reserve, pay func(ctx context.Context, run *idempotency.Run) error // nil for a call that succeeds
	calls        atomic.Int64
}

func (o *threeSteps) Name() string { return "three_steps" }

func (o *threeSteps) Steps(run *idempotency.Run) idempotency.Steps {
	call := func(f func(context.Context, *idempotency.Run) error) func(context.Context) error {
		return func(ctx context.Context) error {
			o.calls.Add(1)
			if f == nil {
				return nil
			}
			return f(ctx, run)
		}
	}
	return idempotency.Steps{
		idempotency.Started: {Record: recording(run, "created", idempotency.Advance(reserved))},
		reserved:            {Call: call(o.reserve), Record: recording(run, "reserved", idempotency.Advance(paid))},
		paid: {Call: call(o.pay), Record: func(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
			effect(tx, run, "paid")
			return idempotency.Finish(answer(run)), nil
		}},
	}
}

// onceEach is what three steps leave behind.
var onceEach = map[string]int{"created": 1, "reserved": 1, "paid": 1}
