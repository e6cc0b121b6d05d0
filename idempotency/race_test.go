package idempotency_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
)

// race sends the request n times at once and returns what came back.
func (b *bench) race(n int, req idempotency.Request, op idempotency.Operation) (results []idempotency.Result, errs []error) {
	results, errs = make([]idempotency.Result, n), make([]error, n)
	var ready, done sync.WaitGroup
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			ready.Wait()
			results[i], errs[i] = b.do(req, op)
		})
	}
	done.Wait()
	return results, errs
}

// requireOneAnswer says that every racer was given the same bytes or told to
// wait, and that one of them made them.
func requireOneAnswer(t *testing.T, results []idempotency.Result, errs []error) {
	t.Helper()
	var body []byte
	made := 0
	for i, result := range results {
		if errs[i] != nil {
			require.ErrorIs(t, errs[i], idempotency.ErrInProgress)
			continue
		}
		if body == nil {
			body = result.Response.Body
		}
		require.Equal(t, string(body), string(result.Response.Body))
		if !result.Replayed {
			made++
		}
	}
	require.Equal(t, 1, made)
}

func TestDo_raceForNewKey(t *testing.T) {
	t.Parallel()
	for _, size := range []int32{1, 8} {
		b := newBench(t, connections(size))
		for range 8 {
			req := b.request()
			results, errs := b.race(50, req, oneStep())
			requireOneAnswer(t, results, errs)
			require.Equal(t, map[string]int{"done": 1}, b.effects(req))

			req, op := b.request(), &threeSteps{}
			results, errs = b.race(50, req, op)
			requireOneAnswer(t, results, errs)
			require.Equal(t, onceEach, b.effects(req))
			require.EqualValues(t, 2, op.calls.Load())
		}
		b.requireIdle()
	}
}

func TestDo_raceForAbandonedKey(t *testing.T) {
	t.Parallel()
	b := newBench(t, connections(8))
	for _, state := range []idempotencytest.State{
		{Point: paid},
		{Point: paid, Leased: true, LeaseAge: 2 * lockTimeout},
	} {
		req, op := b.request(), &threeSteps{}
		b.put(req, op, state)
		results, errs := b.race(50, req, op)
		requireOneAnswer(t, results, errs)
		require.Equal(t, map[string]int{"paid": 1}, b.effects(req))
		require.EqualValues(t, 1, op.calls.Load())
		require.Equal(t, 2, b.state(req).Attempt)
	}
}

// Different requests under one key: one of them wins, and the others hear that
// they are not it.
func TestDo_raceOfDifferentRequests(t *testing.T) {
	t.Parallel()
	b := newBench(t, connections(8))
	req := b.request()
	other := req
	other.Params = []byte(`{"amount":1300}`)
	var all sync.WaitGroup
	errs := make([]error, 20)
	for i := range errs {
		r := req
		if i%2 == 1 {
			r = other
		}
		all.Go(func() { _, errs[i] = b.do(r, oneStep()) })
	}
	all.Wait()
	reused := 0
	for _, err := range errs {
		if errors.Is(err, idempotency.ErrKeyReused) {
			reused++
			continue
		}
		if err != nil {
			require.ErrorIs(t, err, idempotency.ErrInProgress)
		}
	}
	require.Positive(t, reused)
	require.LessOrEqual(t, reused, len(errs)/2)
	require.Equal(t, map[string]int{"done": 1}, b.effects(req))
}

// Whether a lease is alive is the database's to say (R8).
func TestDo_clockOfTheProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, shift := range map[string]time.Duration{"slow": -25 * time.Hour, "fast": 25 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			engine := newEngine(t, b.pool, func() time.Time { return time.Now().Add(shift) })

			alive, op := b.request(), &threeSteps{}
			b.put(alive, op, idempotencytest.State{Point: reserved, Leased: true, LeaseAge: lockTimeout / 2})
			_, err := engine.Do(t.Context(), alive, op)
			require.ErrorIs(t, err, idempotency.ErrInProgress)

			dead := b.request()
			b.put(dead, op, idempotencytest.State{Point: reserved, Leased: true, LeaseAge: 2 * lockTimeout})
			op.reserve = func(ctx context.Context, run *idempotency.Run) error {
				require.NoError(t, ctx.Err())
				require.WithinDuration(t, time.Now(), run.Now(), time.Minute)
				return nil
			}
			_, err = engine.Do(t.Context(), dead, op)
			require.NoError(t, err)
		})
	}
}

// A run whose lease was taken over while it called writes nothing more (R7).
func TestDo_leaseLost(t *testing.T) {
	t.Parallel()
	readsFirst := func(ctx context.Context, tx *idempotency.Tx) error {
		var one int
		return tx.QueryRow(ctx, "SELECT 1").Scan(&one)
	}
	for _, test := range []struct {
		name   string
		before func(context.Context, *idempotency.Tx) error
	}{
		{"and it only writes", func(context.Context, *idempotency.Tx) error { return nil }},
		{"and it reads first", readsFirst},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			req := b.request()
			calling, goOn := make(chan struct{}), make(chan struct{})
			zombie := operation{name: "three_steps", steps: func(run *idempotency.Run) idempotency.Steps {
				return idempotency.Steps{
					idempotency.Started: {Record: recording(run, "created", idempotency.Advance(reserved))},
					reserved: {
						Call: func(context.Context) error {
							close(calling)
							<-goOn
							return nil
						},
						Record: func(ctx context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
							effect(tx, run, "written by the zombie")
							return idempotency.Finish(idempotency.Response{Status: 200}), test.before(ctx, tx)
						},
					},
				}
			}}
			lost := make(chan error)
			go func() {
				_, err := b.do(req, zombie)
				lost <- err
			}()
			<-calling
			idempotencytest.AgeLease(t, b.pool, b.account, idempotency.KeyID(b.account, req.Key), 2*lockTimeout)

			// The zombie wakes up while the next run is calling itself.
			op := &threeSteps{}
			op.pay = func(context.Context, *idempotency.Run) error {
				before := b.row(req)
				close(goOn)
				require.ErrorIs(t, <-lost, idempotency.ErrInProgress)
				require.Equal(t, before, b.row(req))
				return nil
			}
			result, err := b.do(req, op)
			require.NoError(t, err)
			require.Equal(t, 2, result.Attempt)
			require.Equal(t, onceEach, b.effects(req))
			b.requireIdle()
		})
	}
}

// The same, with the key finished when the zombie wakes up.
func TestDo_zombieAfterFinish(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	req, next := b.request(), &threeSteps{}
	var answered idempotency.Result
	var finished string
	zombie := &threeSteps{reserve: func(context.Context, *idempotency.Run) error {
		idempotencytest.AgeLease(t, b.pool, b.account, idempotency.KeyID(b.account, req.Key), 2*lockTimeout)
		var err error
		answered, err = b.do(req, next)
		finished = b.row(req)
		return err
	}}
	_, err := b.do(req, zombie)
	require.ErrorIs(t, err, idempotency.ErrInProgress)
	require.EqualValues(t, 1, zombie.calls.Load())
	require.Equal(t, finished, b.row(req))
	require.Equal(t, onceEach, b.effects(req))

	again, err := b.do(req, next)
	require.NoError(t, err)
	require.Equal(t, answered.Response, again.Response)
}

// Between looking at an abandoned key and taking it over somebody else may be
// faster.
func TestDo_overtaken(t *testing.T) {
	t.Parallel()
	for name, faster := range map[string]*threeSteps{
		"and done":      {},
		"and gave up":   {pay: func(context.Context, *idempotency.Run) error { return errNoAnswer }},
		"and works yet": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			req, slow := b.request(), &threeSteps{}
			b.put(req, slow, idempotencytest.State{Point: reserved})
			var left string
			_, err := b.do(req, operation{name: slow.Name(), steps: func(run *idempotency.Run) idempotency.Steps {
				if run.Resumed { // the key has been looked at
					if faster == nil {
						_, err := b.pool.Exec(t.Context(), "UPDATE idempotency_keys SET lease_token = $1, locked_at = now()", uuid.New())
						require.NoError(t, err)
					} else {
						_, _ = b.do(req, faster)
					}
					left = b.row(req)
				}
				return slow.Steps(run)
			}})
			require.ErrorIs(t, err, idempotency.ErrInProgress)
			require.Zero(t, slow.calls.Load())
			require.Equal(t, left, b.row(req))
		})
	}
}

// What an operator stored while a run was calling is the answer of that run too.
func TestDo_resolvedByAnOperator(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	req := b.request()
	resolve := func(context.Context, *idempotency.Run) error {
		_, err := b.pool.Exec(t.Context(), `
UPDATE idempotency_keys
   SET recovery_point   = 'finished',
       locked_at        = NULL,
       finished_at      = now(),
       response_code    = 402,
       response_headers = '{}',
       response_body    = 'resolved'`)
		return err
	}
	result, err := b.do(req, &threeSteps{reserve: resolve})
	require.NoError(t, err)
	require.Equal(t, 402, result.Response.Status)
	require.Equal(t, "resolved", string(result.Response.Body))
	require.Equal(t, map[string]int{"created": 1}, b.effects(req))
}

// Nor does a run go on whose lease somebody else gave back.
func TestDo_leaseGivenBackByAnOperator(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	req := b.request()
	op := &threeSteps{reserve: func(context.Context, *idempotency.Run) error {
		_, err := b.pool.Exec(t.Context(), "UPDATE idempotency_keys SET locked_at = NULL")
		return err
	}}
	_, err := b.do(req, op)
	require.ErrorIs(t, err, idempotency.ErrInProgress)
	require.EqualValues(t, 1, op.calls.Load())
	require.Equal(t, map[string]int{"created": 1}, b.effects(req))
}

// A zombie that fails does not give back a lease that is another run's.
func TestDo_zombieFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	req := b.request()
	var taken string
	_, err := b.do(req, &threeSteps{reserve: func(context.Context, *idempotency.Run) error {
		_, err := b.pool.Exec(t.Context(), "UPDATE idempotency_keys SET lease_token = $1, locked_at = now()", uuid.New())
		require.NoError(t, err)
		taken = b.row(req)
		return errNoAnswer
	}})
	require.ErrorIs(t, err, errNoAnswer)
	require.Equal(t, taken, b.row(req))
}

func ptr[T any](v T) *T { return &v }
