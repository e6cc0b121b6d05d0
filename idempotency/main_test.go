package idempotency_test

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
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

func TestMain(m *testing.M) {
	// Each check of the model takes 20 ms of CPU time.
	if err := flag.Set("rapid.checks", "40"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(dbtest.Main{M: m})
}

const lockTimeout = time.Minute

var (
	released = idempotencytest.State{Point: paid}
	leased   = idempotencytest.State{Point: paid, Leased: true}
	expired  = idempotencytest.State{Point: paid, Leased: true, LeaseAge: 2 * lockTimeout}
	finished = idempotencytest.State{Point: idempotency.Finished}
)

const (
	waitFor = 10 * time.Second
	tick    = time.Millisecond
)

type fixture struct {
	t       testing.TB
	pool    *pgxpool.Pool
	engine  *idempotency.Engine
	account uuid.UUID
}

// newFixture returns a fixture. By default its pool has a single connection, so a
// connection held across an external call blocks the test (R6).
func newFixture(t testing.TB, configure ...func(*pgxpool.Config)) *fixture {
	t.Helper()
	one := func(config *pgxpool.Config) { config.MaxConns = 1 }
	pool := idempotencytest.NewPool(t, append([]func(*pgxpool.Config){one}, configure...)...)
	return &fixture{t: t, pool: pool, engine: newEngine(t, pool), account: idempotencytest.Account(t, pool)}
}

func connections(n int32) func(*pgxpool.Config) {
	return func(config *pgxpool.Config) { config.MaxConns = n }
}

func sessionSetting(name, value string) func(*pgxpool.Config) {
	return func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams[name] = value }
}

func newEngine(t testing.TB, pool *pgxpool.Pool, configure ...func(*idempotency.Config)) *idempotency.Engine {
	t.Helper()
	config := idempotency.Config{LockTimeout: lockTimeout, Clock: time.Now, Logger: slog.New(slog.DiscardHandler)}
	for _, change := range configure {
		change(&config)
	}
	engine, err := idempotency.New(pool, config)
	require.NoError(t, err)
	return engine
}

func (f *fixture) request() idempotency.Request {
	key, err := idempotency.ParseKey(rand.Text())
	require.NoError(f.t, err)
	return idempotency.Request{
		AccountID: f.account,
		Key:       key,
		Method:    "POST",
		Path:      "/v1/things",
		Params:    []byte(`{"amount":1200}`),
	}
}

func keyID(req idempotency.Request) uuid.UUID { return idempotency.KeyID(req.AccountID, req.Key) }

func (f *fixture) do(req idempotency.Request, op idempotency.Operation) (idempotency.Result, error) {
	return f.engine.Do(f.t.Context(), req, op)
}

func (f *fixture) mustDo(req idempotency.Request, op idempotency.Operation) idempotency.Result {
	f.t.Helper()
	result, err := f.do(req, op)
	require.NoError(f.t, err)
	return result
}

func (f *fixture) resume(req idempotency.Request, op idempotency.Operation) (idempotency.Result, error) {
	return f.engine.Resume(f.t.Context(), req.AccountID, keyID(req), []idempotency.Operation{op})
}

func (f *fixture) put(req idempotency.Request, op idempotency.Operation, state idempotencytest.State) {
	f.t.Helper()
	idempotencytest.PutKey(f.t, f.pool, req, op.Name(), state)
}

func (f *fixture) ageLease(req idempotency.Request, age time.Duration) {
	f.t.Helper()
	idempotencytest.AgeLease(f.t, f.pool, req.AccountID, keyID(req), age)
}

func (f *fixture) ageRun(req idempotency.Request, age time.Duration) {
	f.t.Helper()
	idempotencytest.AgeRun(f.t, f.pool, req.AccountID, keyID(req), age)
}

// update changes columns of a key. Arguments begin at $3.
func (f *fixture) update(req idempotency.Request, columns string, arguments ...any) {
	f.t.Helper()
	tag, err := f.pool.Exec(f.t.Context(), "UPDATE idempotency_keys SET "+columns+" WHERE account_id = $1 AND id = $2",
		append([]any{req.AccountID, keyID(req)}, arguments...)...)
	require.NoError(f.t, err)
	require.EqualValues(f.t, 1, tag.RowsAffected())
}

func (f *fixture) row(req idempotency.Request) string {
	f.t.Helper()
	var row string
	const ofKey = "SELECT coalesce(max(k::text), '') FROM idempotency_keys k WHERE account_id = $1 AND id = $2"
	err := f.pool.QueryRow(f.t.Context(), ofKey, req.AccountID, keyID(req)).Scan(&row)
	require.NoError(f.t, err)
	return row
}

type keyState struct {
	Point     string
	Leased    bool
	Attempt   int
	LastError *string
}

func (f *fixture) state(req idempotency.Request) keyState {
	f.t.Helper()
	rows, err := f.pool.Query(f.t.Context(), `
SELECT recovery_point AS point,
       locked_at IS NOT NULL AS leased,
       attempt,
       last_error
  FROM idempotency_keys
 WHERE account_id = $1
   AND id = $2`, req.AccountID, keyID(req))
	require.NoError(f.t, err)
	state, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[keyState])
	require.NoError(f.t, err)
	return state
}

func (f *fixture) effects(req idempotency.Request) map[string]int {
	f.t.Helper()
	rows, err := f.pool.Query(f.t.Context(), `
SELECT action,
       count(*)
  FROM audit_records
 WHERE account_id = $1
   AND resource_id = $2
 GROUP BY action`, req.AccountID, string(req.Key))
	require.NoError(f.t, err)
	effects := map[string]int{}
	var action string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&action, &n}, func() error { effects[action] = n; return nil })
	require.NoError(f.t, err)
	return effects
}

func (f *fixture) requireIdle() {
	f.t.Helper()
	// The pool closes a broken connection in the background.
	require.Eventually(f.t, func() bool { return f.pool.Stat().AcquiredConns() == 0 }, waitFor, tick)
	// The server detects a closed connection later.
	require.Eventually(f.t, func() bool {
		var open int
		err := f.pool.QueryRow(f.t.Context(), `
SELECT count(*)
  FROM pg_stat_activity
 WHERE datname = current_database()
   AND pid <> pg_backend_pid()
   AND state LIKE 'idle in transaction%'`).Scan(&open)
		return err == nil && open == 0
	}, waitFor, tick)
}

type operation struct {
	name  string
	steps func(run *idempotency.Run) idempotency.Steps
}

func (o operation) Name() string { return o.name }

func (o operation) Steps(run *idempotency.Run) idempotency.Steps { return o.steps(run) }

func startOnly(record func(ctx context.Context, tx *idempotency.Tx, run *idempotency.Run) (idempotency.Outcome, error)) operation {
	return operation{name: "start_only", steps: func(run *idempotency.Run) idempotency.Steps {
		return idempotency.Steps{Start: func(ctx context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
			return record(ctx, tx, run)
		}}
	}}
}

// beforeRecord returns op with f called first in the record of one recovery point.
func beforeRecord(op idempotency.Operation, point idempotency.RecoveryPoint, f func(context.Context, *idempotency.Tx, *idempotency.Run) error) operation {
	return operation{name: op.Name(), steps: func(run *idempotency.Run) idempotency.Steps {
		wrap := func(record idempotency.Record) idempotency.Record {
			return func(ctx context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
				if err := f(ctx, tx, run); err != nil {
					return idempotency.Outcome{}, err
				}
				return record(ctx, tx)
			}
		}
		steps := op.Steps(run)
		if point == idempotency.Started {
			steps.Start = wrap(steps.Start)
			return steps
		}
		step := steps.From[point]
		steps.From[point] = func(ctx context.Context) (idempotency.Record, error) {
			record, err := step(ctx)
			return wrap(record), err
		}
		return steps
	}}
}

// query reads in a record, so that its transaction is open before COMMIT is sent.
func query(ctx context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
	return tx.QueryRow(ctx, "SELECT 1", nil, new(int))
}

var errInvalid = errors.New("amount too small")

func rejecting(op idempotency.Operation) operation {
	return beforeRecord(op, idempotency.Started, func(context.Context, *idempotency.Tx, *idempotency.Run) error { return errInvalid })
}

func noCall(record idempotency.Record) idempotency.Step {
	return func(context.Context) (idempotency.Record, error) { return record, nil }
}

const insertEffect = `
INSERT INTO audit_records (
    id,
    account_id,
    action,
    resource_type,
    resource_id
) VALUES ($1, $2, $3, 'test', $4)`

// effect records something countable. Its random id does not prevent a second one.
func effect(tx *idempotency.Tx, run *idempotency.Run, name string) {
	tx.Queue(insertEffect, uuid.New(), run.AccountID, name, string(run.Key))
}

func recordEffect(run *idempotency.Run, name string, outcome idempotency.Outcome) idempotency.Record {
	return func(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
		effect(tx, run, name)
		return outcome, nil
	}
}

func finishWith(run *idempotency.Run, name string) idempotency.Record {
	return func(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
		effect(tx, run, name)
		return idempotency.Finish(uniqueResponse(run)), nil
	}
}

func uniqueResponse(run *idempotency.Run) idempotency.Response {
	return idempotency.Response{
		Status:  201,
		Headers: map[string]string{"Content-Type": "application/json", "Location": "/v1/things/" + run.KeyID.String()},
		Body:    fmt.Appendf(nil, `{"id":%q,"nonce":%q}`, run.KeyID, rand.Text()),
	}
}

func oneStep() operation {
	return startOnly(func(ctx context.Context, tx *idempotency.Tx, run *idempotency.Run) (idempotency.Outcome, error) {
		return finishWith(run, "done")(ctx, tx)
	})
}

const (
	reserved idempotency.RecoveryPoint = "reserved"
	paid     idempotency.RecoveryPoint = "paid"
)

var errNoResponse = errors.New("the provider did not respond")

// threeSteps is an operation with two external calls.
type threeSteps struct {
	reserve, pay func(ctx context.Context, run *idempotency.Run) error // nil for a call that succeeds
	calls        atomic.Int64
}

func (o *threeSteps) Name() string { return "three_steps" }

func (o *threeSteps) Steps(run *idempotency.Run) idempotency.Steps {
	return idempotency.Steps{
		Start: recordEffect(run, "created", idempotency.Advance(reserved)),
		From: map[idempotency.RecoveryPoint]idempotency.Step{
			reserved: o.step(run, o.reserve, recordEffect(run, "reserved", idempotency.Advance(paid))),
			paid:     o.step(run, o.pay, finishWith(run, "paid")),
		},
	}
}

func (o *threeSteps) step(run *idempotency.Run, call func(context.Context, *idempotency.Run) error, record idempotency.Record) idempotency.Step {
	return func(ctx context.Context) (idempotency.Record, error) {
		o.calls.Add(1)
		if call != nil {
			if err := call(ctx, run); err != nil {
				return nil, err
			}
		}
		return record, nil
	}
}

var onceEach = map[string]int{"created": 1, "reserved": 1, "paid": 1}

func ptr[T any](v T) *T { return &v }
