// Package engine_test has the proofs of package idempotency that its own tests leave out:
// a random model, COMMITs that are lost or delayed in every way, each way to send a
// statement, and a second implementation of RFC 8785.
package engine_test

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/migrations/dbtest"
)

func TestMain(m *testing.M) {
	// Each check of the model takes 20 ms of CPU time.
	if err := flag.Set("rapid.checks", "100"); err != nil {
		panic(err)
	}
	os.Exit(dbtest.Main{M: m}.Run())
}

const (
	leaseDuration = time.Minute
	waitFor       = 10 * time.Second
	tick          = time.Millisecond
)

type fixture struct {
	t       testing.TB
	pool    *pgxpool.Pool
	engine  *idempotency.Engine
	account uuid.UUID
}

func newFixture(t testing.TB, configure ...func(*pgxpool.Config)) *fixture {
	t.Helper()
	pool := idempotencytest.NewPool(t, append([]func(*pgxpool.Config){connections(1)}, configure...)...)
	_, err := pool.Exec(t.Context(), "CREATE TABLE effects (idempotency_key text NOT NULL, name text NOT NULL)")
	require.NoError(t, err)
	engine, err := idempotency.New(pool, idempotency.Config{LeaseDuration: leaseDuration, Clock: time.Now, Waiters: 1, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return &fixture{t: t, pool: pool, engine: engine, account: idempotencytest.Account(t, pool)}
}

func connections(n int32) func(*pgxpool.Config) {
	return func(config *pgxpool.Config) { config.MaxConns = n }
}

func sessionSetting(name, value string) func(*pgxpool.Config) {
	return func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams[name] = value }
}

func (f *fixture) request() idempotency.Request {
	return idempotency.Request{
		AccountID: f.account, Key: idempotency.Key(rand.Text()), Method: "POST", Path: "/v1/things", Params: []byte(`{"amount":1200}`),
	}
}

func (f *fixture) do(req idempotency.Request, op idempotency.Operation) (idempotency.Result, error) {
	return f.engine.Do(f.t.Context(), req, op)
}

func (f *fixture) mustDo(req idempotency.Request, op idempotency.Operation) idempotency.Result {
	f.t.Helper()
	result, err := f.do(req, op)
	require.NoError(f.t, err)
	return result
}

// update changes columns of a key.
func (f *fixture) update(req idempotency.Request, columns string) {
	f.t.Helper()
	tag, err := f.pool.Exec(f.t.Context(), "UPDATE idempotency_keys SET "+columns+" WHERE account_id = $1 AND idempotency_key = $2", req.AccountID, string(req.Key))
	require.NoError(f.t, err)
	require.EqualValues(f.t, 1, tag.RowsAffected())
}

func (f *fixture) expireLease(req idempotency.Request) {
	f.t.Helper()
	f.update(req, "locked_at = locked_at - interval '2 minutes'")
}

// row returns the row of a key as text, or "".
func (f *fixture) row(req idempotency.Request) (row string) {
	f.t.Helper()
	err := f.pool.QueryRow(f.t.Context(), "SELECT coalesce(max(k::text), '') FROM idempotency_keys k WHERE account_id = $1 AND idempotency_key = $2",
		req.AccountID, string(req.Key)).Scan(&row)
	require.NoError(f.t, err)
	return row
}

type keyState struct {
	Point  string
	Leased bool
	Runs   int
}

func (f *fixture) state(req idempotency.Request) (state keyState) {
	f.t.Helper()
	err := f.pool.QueryRow(f.t.Context(), `
SELECT recovery_point,
       locked_at IS NOT NULL,
       runs
  FROM idempotency_keys
 WHERE account_id = $1
   AND idempotency_key = $2`, req.AccountID, string(req.Key)).Scan(&state.Point, &state.Leased, &state.Runs)
	require.NoError(f.t, err)
	return state
}

func (f *fixture) effects(req idempotency.Request) map[string]int {
	f.t.Helper()
	rows, err := f.pool.Query(f.t.Context(), "SELECT name, count(*) FROM effects WHERE idempotency_key = $1 GROUP BY name", string(req.Key))
	require.NoError(f.t, err)
	effects := map[string]int{}
	var name string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&name, &n}, func() error { effects[name] = n; return nil })
	require.NoError(f.t, err)
	return effects
}

const (
	reserved idempotency.RecoveryPoint = "reserved"
	paid     idempotency.RecoveryPoint = "paid"
)

var (
	errNoResponse = errors.New("the provider did not respond")
	onceEach      = map[string]int{"created": 1, "reserved": 1, "paid": 1}
)

func record(run *idempotency.Run, name string, next idempotency.Transition) idempotency.RecordFunc {
	return func(_ context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
		tx.Queue("INSERT INTO effects (idempotency_key, name) VALUES ($1, $2)", string(run.Key), name)
		return next, nil
	}
}

func finish(run *idempotency.Run, name string) idempotency.RecordFunc {
	return record(run, name, idempotency.Finish(idempotency.Response{Status: 201, Body: fmt.Appendf(nil, `{"nonce":%q}`, rand.Text())}))
}

// threeSteps is an operation with two external calls.
type threeSteps struct {
	reserve, pay func(ctx context.Context) error // nil for a call that succeeds
	calls        atomic.Int64

	// before, if set, is called in each record with the recovery point of its step.
	before func(ctx context.Context, tx *idempotency.Tx, at idempotency.RecoveryPoint) error
}

// read is a before that opens the transaction before COMMIT is sent.
func read(ctx context.Context, tx *idempotency.Tx, _ idempotency.RecoveryPoint) error {
	return tx.QueryRow(ctx, "SELECT 1", nil, new(int))
}

func (o *threeSteps) Name() string { return "three_steps" }

func (o *threeSteps) Steps(run *idempotency.Run) idempotency.Steps {
	return idempotency.Steps{
		Start: o.record(idempotency.Started, record(run, "created", idempotency.Advance(reserved))),
		At: map[idempotency.RecoveryPoint]idempotency.StepFunc{
			reserved: o.step(o.reserve, o.record(reserved, record(run, "reserved", idempotency.Advance(paid)))),
			paid:     o.step(o.pay, o.record(paid, finish(run, "paid"))),
		},
	}
}

func (o *threeSteps) record(at idempotency.RecoveryPoint, next idempotency.RecordFunc) idempotency.RecordFunc {
	return func(ctx context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
		if o.before != nil {
			if err := o.before(ctx, tx, at); err != nil {
				return idempotency.Transition{}, err
			}
		}
		return next(ctx, tx)
	}
}

func (o *threeSteps) step(call func(context.Context) error, next idempotency.RecordFunc) idempotency.StepFunc {
	return func(ctx context.Context) (idempotency.RecordFunc, error) {
		o.calls.Add(1)
		if call != nil {
			if err := call(ctx); err != nil {
				return nil, err
			}
		}
		return next, nil
	}
}
