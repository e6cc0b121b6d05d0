package idempotency_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
)

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
	for size, rounds := range map[int32]int{1: 1, 8: 4} {
		f, racers := newFixture(t, connections(size)), 8+2*int(size)
		for range rounds {
			req := f.request()
			results, errs := f.race(racers, req, oneStep())
			requireOneExecution(t, results, errs)
			require.Equal(t, map[string]int{"done": 1}, f.effects(req))

			req, op := f.request(), &threeSteps{}
			results, errs = f.race(racers, req, op)
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
	for _, state := range []given{released, expired} {
		req, op := f.request(), &threeSteps{}
		f.put(req, op, state)
		results, errs := f.race(24, req, op)
		requireOneExecution(t, results, errs)
		require.Equal(t, map[string]int{"paid": 1}, f.effects(req))
		require.EqualValues(t, 1, op.calls.Load())
		require.Equal(t, 2, f.state(req).Runs)
	}
}

func TestDo_raceOfDifferentRequests(t *testing.T) {
	t.Parallel()
	f := newFixture(t, connections(8))
	req := f.request()
	other := req
	other.Params = []byte(`{"amount":1300}`)
	var all sync.WaitGroup
	errs := make([]error, 20)
	for i := range errs {
		all.Go(func() { _, errs[i] = f.do([]idempotency.Request{req, other}[i%2], oneStep()) })
	}
	all.Wait()
	reused := [2]int{}
	for i, err := range errs {
		if errors.Is(err, idempotency.ErrKeyReused) {
			reused[i%2]++
		} else if err != nil {
			require.ErrorIs(t, err, idempotency.ErrInProgress)
		}
	}
	require.ElementsMatch(t, []bool{true, false}, []bool{reused[0] > 0, reused[1] > 0}, "only the duplicates of one request")
	require.Equal(t, map[string]int{"done": 1}, f.effects(req))
}

// The database's clock decides whether a lease has expired.
func TestDo_wrongProcessClock(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, shift := range map[string]time.Duration{"slow": -25 * time.Hour, "fast": 25 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			f.engine = newEngine(t, f.pool, func(c *idempotency.Config) {
				c.Clock = func() time.Time { return time.Now().Add(shift) }
			})
			op := &threeSteps{pay: func(ctx context.Context, run *idempotency.Run) error {
				require.NoError(t, ctx.Err())
				require.WithinDuration(t, time.Now(), run.Now(), time.Minute)
				return nil
			}}
			req := f.request()
			f.put(req, op, given{Point: paid, Leased: true, LeaseAge: leaseDuration / 2})
			_, err := f.do(req, op)
			require.ErrorIs(t, err, idempotency.ErrInProgress)
			f.ageLease(req, leaseDuration)
			f.mustDo(req, op)
			f.mustDo(f.request(), op)
		})
	}
}

// A run whose lease was taken over writes nothing more.
func TestDo_leaseLost(t *testing.T) {
	t.Parallel()
	noQuery := func(context.Context, *idempotency.Tx, *idempotency.Run) error { return nil }
	f := newFixture(t)
	for name, test := range map[string]struct {
		before   func(context.Context, *idempotency.Tx, *idempotency.Run) error
		finished bool
	}{
		"writes, next run in progress":             {noQuery, false},
		"writes, next run finished":                {noQuery, true},
		"reads, then writes, next run in progress": {query, false},
		"reads, then writes, next run finished":    {query, true},
	} {
		t.Run(name, func(t *testing.T) {
			req, call := f.request(), newBlockedCall()
			paused := beforeRecord(&threeSteps{reserve: call.call}, reserved, func(ctx context.Context, tx *idempotency.Tx, run *idempotency.Run) error {
				effect(tx, run, "written by the paused run")
				return test.before(ctx, tx, run)
			})
			lost := f.doAsync(req, paused)
			<-call.reached
			f.ageLease(req, 2*leaseDuration)
			wake := func() {
				row := f.row(req)
				call.release(nil)
				require.ErrorIs(t, (<-lost).err, idempotency.ErrLeaseLost)
				require.Equal(t, row, f.row(req))
			}

			op := &threeSteps{pay: func(context.Context, *idempotency.Run) error {
				if !test.finished {
					wake()
				}
				return nil
			}}
			result := f.mustDo(req, op)
			require.Equal(t, 2, result.Runs)
			if test.finished {
				wake()
			}
			require.Equal(t, onceEach, f.effects(req))
			f.requireIdle()
		})
	}
}

// Another run takes the key between this run's lookup and its takeover.
func TestDo_overtaken(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, faster := range []*threeSteps{{}, failingToPay()} {
		req, slow := f.request(), &threeSteps{}
		f.put(req, slow, given{Point: reserved})
		var left string
		_, err := f.do(req, operation{name: slow.Name(), steps: func(run *idempotency.Run) idempotency.Steps {
			_, _ = f.do(req, faster)
			left = f.row(req)
			return slow.Steps(run)
		}})
		require.ErrorIs(t, err, idempotency.ErrInProgress)
		require.Zero(t, slow.calls.Load())
		require.Equal(t, left, f.row(req))
	}
}

// The run writes nothing. [TestDo_leaseLost] has the changes by another run.
func TestDo_keyChangedDuringCall(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, test := range map[string]struct {
		columns string
		callErr error
		want    error
	}{
		"released by an operator":       {"locked_at = NULL", nil, idempotency.ErrInProgress},
		"leased, and then a call fails": {"lease_token = md5(lease_token::text)::uuid", errNoResponse, errNoResponse},
	} {
		t.Run(name, func(t *testing.T) {
			req := f.request()
			var changed string
			op := &threeSteps{reserve: func(context.Context, *idempotency.Run) error {
				f.update(req, test.columns)
				changed = f.row(req)
				return test.callErr
			}}
			_, err := f.do(req, op)
			require.ErrorIs(t, err, test.want)
			require.EqualValues(t, 1, op.calls.Load())
			require.Equal(t, map[string]int{"created": 1}, f.effects(req))
			require.Equal(t, changed, f.row(req))
		})
	}
}
