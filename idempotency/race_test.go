package idempotency_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
)

// race sends the request n times at once.
func (f *fixture) race(n int, req idempotency.Request, op idempotency.Operation) (results []idempotency.Result, errs []error) {
	results, errs = make([]idempotency.Result, n), make([]error, n)
	var ready, done sync.WaitGroup
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			ready.Wait()
			results[i], errs[i] = f.do(req, op)
		})
	}
	done.Wait()
	return results, errs
}

// requireOneExecution fails unless one of the requests executed the operation and
// the others got the same bytes or ErrInProgress.
func requireOneExecution(t *testing.T, results []idempotency.Result, errs []error) {
	t.Helper()
	var body []byte
	executed := 0
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
			executed++
		}
	}
	require.Equal(t, 1, executed)
}

func TestDo_raceForNewKey(t *testing.T) {
	t.Parallel()
	for _, size := range []int32{1, 8} {
		f := newFixture(t, connections(size))
		for range 8 {
			req := f.request()
			results, errs := f.race(50, req, oneStep())
			requireOneExecution(t, results, errs)
			require.Equal(t, map[string]int{"done": 1}, f.effects(req))

			req, op := f.request(), &threeSteps{}
			results, errs = f.race(50, req, op)
			requireOneExecution(t, results, errs)
			require.Equal(t, onceEach, f.effects(req))
			require.EqualValues(t, 2, op.calls.Load())
		}
		f.requireIdle()
	}
}

func TestDo_raceForAbandonedKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t, connections(8))
	for _, state := range []idempotencytest.State{
		{Point: paid},
		{Point: paid, Leased: true, LeaseAge: 2 * lockTimeout},
	} {
		req, op := f.request(), &threeSteps{}
		f.put(req, op, state)
		results, errs := f.race(50, req, op)
		requireOneExecution(t, results, errs)
		require.Equal(t, map[string]int{"paid": 1}, f.effects(req))
		require.EqualValues(t, 1, op.calls.Load())
		require.Equal(t, 2, f.state(req).Attempt)
	}
}

// Of two different requests with one key, one is executed and the other gets
// ErrKeyReused.
func TestDo_raceOfDifferentRequests(t *testing.T) {
	t.Parallel()
	f := newFixture(t, connections(8))
	req := f.request()
	other := req
	other.Params = []byte(`{"amount":1300}`)
	var all sync.WaitGroup
	errs := make([]error, 20)
	for i := range errs {
		r := req
		if i%2 == 1 {
			r = other
		}
		all.Go(func() { _, errs[i] = f.do(r, oneStep()) })
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
	require.Equal(t, map[string]int{"done": 1}, f.effects(req))
}

// The database's clock decides whether a lease is alive (R8).
func TestDo_wrongProcessClock(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, shift := range map[string]time.Duration{"slow": -25 * time.Hour, "fast": 25 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			f.engine = newEngine(t, f.pool, func(c *idempotency.Config) {
				c.Clock = func() time.Time { return time.Now().Add(shift) }
			})
			alive, op := f.request(), &threeSteps{}
			f.put(alive, op, idempotencytest.State{Point: reserved, Leased: true, LeaseAge: lockTimeout / 2})
			_, err := f.do(alive, op)
			require.ErrorIs(t, err, idempotency.ErrInProgress)

			expired := f.request()
			f.put(expired, op, idempotencytest.State{Point: reserved, Leased: true, LeaseAge: 2 * lockTimeout})
			op.reserve = func(ctx context.Context, run *idempotency.Run) error {
				require.NoError(t, ctx.Err())
				require.WithinDuration(t, time.Now(), run.Now(), time.Minute)
				return nil
			}
			_, err = f.do(expired, op)
			require.NoError(t, err)
			_, err = f.do(f.request(), op)
			require.NoError(t, err)
		})
	}
}

// A run whose lease was taken over during its call writes nothing more (R7),
// whether the next run is still working or has finished.
func TestDo_leaseLost(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(context.Context, *idempotency.Tx) error{
		"writes": func(context.Context, *idempotency.Tx) error { return nil },
		"reads, then writes": func(ctx context.Context, tx *idempotency.Tx) error {
			var one int
			return tx.QueryRow(ctx, "SELECT 1").Scan(&one)
		},
	} {
		for _, finished := range []bool{false, true} {
			t.Run(name+map[bool]string{false: ", next run works", true: ", next run finished"}[finished], func(t *testing.T) {
				t.Parallel()
				f := newFixture(t)
				req := f.request()
				calling, released := make(chan struct{}), make(chan struct{})
				zombie := wrapRecord(&threeSteps{reserve: func(context.Context, *idempotency.Run) error {
					close(calling)
					<-released
					return nil
				}}, reserved, func(run *idempotency.Run, _ idempotency.Record) idempotency.Record {
					return func(ctx context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
						effect(tx, run, "written by the zombie")
						return idempotency.Finish(idempotency.Response{Status: 200}), before(ctx, tx)
					}
				})
				lost := f.doAsync(req, zombie)
				<-calling
				f.ageLease(req, 2*lockTimeout)
				wake := func() {
					row := f.row(req)
					close(released)
					require.ErrorIs(t, (<-lost).err, idempotency.ErrLeaseLost)
					require.Equal(t, row, f.row(req))
				}

				op := &threeSteps{pay: func(context.Context, *idempotency.Run) error {
					if !finished {
						wake()
					}
					return nil
				}}
				result, err := f.do(req, op)
				require.NoError(t, err)
				require.Equal(t, 2, result.Attempt)
				if finished {
					wake()
				}
				require.Equal(t, onceEach, f.effects(req))
				again, err := f.do(req, op)
				require.NoError(t, err)
				require.Equal(t, result.Response, again.Response)
				f.requireIdle()
			})
		}
	}
}

// Another run takes the key over between this request's lookup and its takeover.
func TestDo_overtaken(t *testing.T) {
	t.Parallel()
	for name, faster := range map[string]*threeSteps{
		"and finishes":      {},
		"and fails":         {pay: func(context.Context, *idempotency.Run) error { return errNoResponse }},
		"and still running": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			req, slow := f.request(), &threeSteps{}
			f.put(req, slow, idempotencytest.State{Point: reserved})
			var left string
			_, err := f.do(req, operation{name: slow.Name(), steps: func(run *idempotency.Run) idempotency.Steps {
				if faster == nil { // the lookup has been made
					f.update(req, "lease_token = gen_random_uuid(), locked_at = now()")
				} else {
					_, _ = f.do(req, faster)
				}
				left = f.row(req)
				return slow.Steps(run)
			}})
			require.ErrorIs(t, err, idempotency.ErrInProgress)
			require.Zero(t, slow.calls.Load())
			require.Equal(t, left, f.row(req))
		})
	}
}

// A response that an operator stored during a call is the result of that run.
func TestDo_resolvedByAnOperator(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req := f.request()
	resolve := func(context.Context, *idempotency.Run) error {
		f.update(req, `
       recovery_point   = 'finished',
       locked_at        = NULL,
       finished_at      = now(),
       response_code    = 402,
       response_headers = '{}',
       response_body    = 'resolved'`)
		return nil
	}
	result, err := f.do(req, &threeSteps{reserve: resolve})
	require.NoError(t, err)
	require.Equal(t, 402, result.Response.Status)
	require.Equal(t, "resolved", string(result.Response.Body))
	require.Equal(t, map[string]int{"created": 1}, f.effects(req))
}

// A run whose lease an operator released during a call stops.
func TestDo_releasedByAnOperator(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req := f.request()
	op := &threeSteps{reserve: func(context.Context, *idempotency.Run) error {
		f.update(req, "locked_at = NULL")
		return nil
	}}
	_, err := f.do(req, op)
	require.ErrorIs(t, err, idempotency.ErrInProgress)
	require.EqualValues(t, 1, op.calls.Load())
	require.Equal(t, map[string]int{"created": 1}, f.effects(req))
}

// A run that fails after it lost its lease does not release the lease of the next
// run.
func TestDo_failsAfterLeaseLost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req := f.request()
	var taken string
	_, err := f.do(req, &threeSteps{reserve: func(context.Context, *idempotency.Run) error {
		f.update(req, "lease_token = gen_random_uuid(), locked_at = now()")
		taken = f.row(req)
		return errNoResponse
	}})
	require.ErrorIs(t, err, errNoResponse)
	require.Equal(t, taken, f.row(req))
}
