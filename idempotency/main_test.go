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

const leaseDuration = time.Minute

type given struct {
	Point    idempotency.RecoveryPoint
	Leased   bool
	LeaseAge time.Duration
	Response idempotency.Response
}

var (
	released = given{Point: paid}
	leased   = given{Point: paid, Leased: true}
	expired  = given{Point: paid, Leased: true, LeaseAge: 2 * leaseDuration}
	finished = given{Point: idempotency.Finished}
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

// newFixture has one connection by default, so a connection held across an external call
// blocks the test.
func newFixture(t testing.TB, configure ...func(*pgxpool.Config)) *fixture {
	t.Helper()
	one := func(config *pgxpool.Config) { config.MaxConns = 1 }
	pool := idempotencytest.NewPool(t, append([]func(*pgxpool.Config){one}, configure...)...)
	_, err := pool.Exec(t.Context(), effectsTable)
	require.NoError(t, err)
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
	config := idempotency.Config{LeaseDuration: leaseDuration, Clock: time.Now, Logger: slog.New(slog.DiscardHandler)}
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
	return f.registered(op).Resume(f.t.Context(), req.AccountID, keyID(req))
}

// registered returns another engine, of a process that has this operation.
func (f *fixture) registered(op idempotency.Operation) *idempotency.Engine {
	f.t.Helper()
	engine := newEngine(f.t, f.pool)
	engine.Register(op)
	return engine
}

func (f *fixture) put(req idempotency.Request, op idempotency.Operation, state given) {
	f.t.Helper()
	if state.Response.Status != 0 {
		f.mustDo(req, operation{op.Name(), finishing(state.Response).steps})
		return
	}
	idempotencytest.PutKey(f.t, f.pool, req, op.Name(), state.Point)
	var leaseAge *time.Duration // NULL makes the difference NULL
	if state.Leased {
		leaseAge = &state.LeaseAge
	}
	f.update(req, "last_error = NULL, locked_at = now() - $3::interval", leaseAge)
}

func (f *fixture) ageLease(req idempotency.Request, age time.Duration) {
	f.t.Helper()
	f.update(req, "locked_at = locked_at - $3::interval", age)
}

func (f *fixture) ageRun(req idempotency.Request, age time.Duration) {
	f.t.Helper()
	f.update(req, "updated_at = updated_at - $3::interval", age)
}

// update takes arguments from $3.
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
	Runs      int
	LastError *string
}

func (f *fixture) state(req idempotency.Request) keyState {
	f.t.Helper()
	rows, err := f.pool.Query(f.t.Context(), `
SELECT recovery_point AS point,
       locked_at IS NOT NULL AS leased,
       runs,
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
SELECT name,
       count(*)
  FROM effects
 WHERE account_id = $1
   AND idempotency_key = $2
 GROUP BY name`, req.AccountID, string(req.Key))
	require.NoError(f.t, err)
	effects := map[string]int{}
	var name string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&name, &n}, func() error { effects[name] = n; return nil })
	require.NoError(f.t, err)
	return effects
}

func (f *fixture) requireIdle() {
	f.t.Helper()
	require.Eventually(f.t, func() bool { return f.pool.Stat().AcquiredConns() == 0 }, waitFor, tick)
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

func startOnly(record func(ctx context.Context, tx *idempotency.Tx, run *idempotency.Run) (idempotency.Transition, error)) operation {
	return operation{name: "start_only", steps: func(run *idempotency.Run) idempotency.Steps {
		return idempotency.Steps{Start: func(ctx context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
			return record(ctx, tx, run)
		}}
	}}
}

func beforeRecord(op idempotency.Operation, point idempotency.RecoveryPoint, f func(context.Context, *idempotency.Tx, *idempotency.Run) error) operation {
	return operation{name: op.Name(), steps: func(run *idempotency.Run) idempotency.Steps {
		wrap := func(record idempotency.RecordFunc) idempotency.RecordFunc {
			return func(ctx context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
				if err := f(ctx, tx, run); err != nil {
					return idempotency.Transition{}, err
				}
				return record(ctx, tx)
			}
		}
		steps := op.Steps(run)
		if point == idempotency.Started {
			steps.Start = wrap(steps.Start)
			return steps
		}
		step := steps.At[point]
		steps.At[point] = func(ctx context.Context) (idempotency.RecordFunc, error) {
			record, err := step(ctx)
			return wrap(record), err
		}
		return steps
	}}
}

func query(ctx context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
	return tx.QueryRow(ctx, "SELECT 1", nil, new(int))
}

var errInvalid = errors.New("amount too small")

func rejecting(op idempotency.Operation) operation {
	return beforeRecord(op, idempotency.Started, func(context.Context, *idempotency.Tx, *idempotency.Run) error { return errInvalid })
}

func noCall(record idempotency.RecordFunc) idempotency.StepFunc {
	return func(context.Context) (idempotency.RecordFunc, error) { return record, nil }
}

const effectsTable = `
CREATE TABLE effects (
    account_id      uuid NOT NULL,
    id              uuid NOT NULL DEFAULT gen_random_uuid(),
    idempotency_key text NOT NULL,
    name            name64 NOT NULL,
    PRIMARY KEY (account_id, id)
)`

const insertEffect = "INSERT INTO effects (account_id, idempotency_key, name) VALUES ($1, $2, $3)"

func effect(tx *idempotency.Tx, run *idempotency.Run, name string) {
	tx.Queue(insertEffect, run.AccountID, string(run.Key), name)
}

func recordEffect(run *idempotency.Run, name string, next idempotency.Transition) idempotency.RecordFunc {
	return func(_ context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
		effect(tx, run, name)
		return next, nil
	}
}

func finishWith(run *idempotency.Run, name string) idempotency.RecordFunc {
	return func(_ context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
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
	return startOnly(func(ctx context.Context, tx *idempotency.Tx, run *idempotency.Run) (idempotency.Transition, error) {
		return finishWith(run, "done")(ctx, tx)
	})
}

const (
	reserved idempotency.RecoveryPoint = "reserved"
	paid     idempotency.RecoveryPoint = "paid"
)

var errNoResponse = errors.New("the provider did not respond")

type threeSteps struct {
	reserve, pay func(ctx context.Context, run *idempotency.Run) error
	calls        atomic.Int64
}

func (o *threeSteps) Name() string { return "three_steps" }

func (o *threeSteps) Steps(run *idempotency.Run) idempotency.Steps {
	return idempotency.Steps{
		Start: recordEffect(run, "created", idempotency.Advance(reserved)),
		At: map[idempotency.RecoveryPoint]idempotency.StepFunc{
			reserved: o.step(run, o.reserve, recordEffect(run, "reserved", idempotency.Advance(paid))),
			paid:     o.step(run, o.pay, finishWith(run, "paid")),
		},
	}
}

func (o *threeSteps) step(run *idempotency.Run, call func(context.Context, *idempotency.Run) error, record idempotency.RecordFunc) idempotency.StepFunc {
	return func(ctx context.Context) (idempotency.RecordFunc, error) {
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
