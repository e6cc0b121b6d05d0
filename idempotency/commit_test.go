package idempotency_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/postgres"
)

// faults are the ways in which a COMMIT gets lost.
var faults = map[string]idempotencytest.Fault{
	"cut before":   idempotencytest.CutBefore,
	"cut after":    idempotencytest.CutAfter,
	"fatal before": idempotencytest.FatalBefore,
	"fatal after":  idempotencytest.FatalAfter,
}

// proxied is a bench behind a proxy.
func proxied(t *testing.T) (*bench, *idempotencytest.Proxy) {
	t.Helper()
	proxy := idempotencytest.NewProxy(t)
	return newBench(t, proxy.Configure), proxy
}

// readingSteps is threeSteps with a transaction that is open before its COMMIT
// is sent.
type readingSteps struct{ threeSteps }

func (o *readingSteps) Steps(run *idempotency.Run) idempotency.Steps {
	steps := o.threeSteps.Steps(run)
	for point, step := range steps {
		record := step.Record
		step.Record = func(ctx context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
			var one int
			if err := tx.QueryRow(ctx, "SELECT 1").Scan(&one); err != nil {
				return idempotency.Outcome{}, err
			}
			return record(ctx, tx)
		}
		steps[point] = step
	}
	return steps
}

// A COMMIT that gets lost is settled by reading the row (R22): the run goes on,
// makes no call again, records each effect once, and gives the answer that is
// stored.
func TestCommit_lost(t *testing.T) {
	t.Parallel()
	for name, fault := range faults {
		for commit := 1; commit <= 3; commit++ {
			t.Run(fmt.Sprintf("%s COMMIT %d", name, commit), func(t *testing.T) {
				t.Parallel()
				b, proxy := proxied(t)
				writing, reading := &threeSteps{}, &readingSteps{}
				for _, test := range []struct {
					op    idempotency.Operation
					calls func() int64
				}{
					{writing, writing.calls.Load},
					{reading, reading.calls.Load},
				} {
					req := b.request()
					proxy.Strike(commit, fault)
					first, err := b.do(req, test.op)
					require.NoError(t, err)
					require.True(t, proxy.Struck())
					require.Equal(t, 201, first.Response.Status)
					require.Equal(t, idempotency.Finished, first.To)
					require.EqualValues(t, 2, test.calls())
					require.Equal(t, onceEach, b.effects(req))

					again, err := b.do(req, test.op)
					require.NoError(t, err)
					require.True(t, again.Replayed)
					require.Equal(t, first.Response, again.Response)
				}
				b.requireIdle()
				require.Zero(t, proxy.Cancels())
			})
		}
	}
}

func TestCommit_lostOfTheOnlyStep(t *testing.T) {
	t.Parallel()
	b, proxy := proxied(t)
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			req := b.request()
			proxy.Strike(1, fault)
			first, err := b.do(req, oneStep())
			require.NoError(t, err)
			require.Equal(t, map[string]int{"done": 1}, b.effects(req))
			again, err := b.do(req, oneStep())
			require.NoError(t, err)
			require.Equal(t, first.Response, again.Response)
		})
	}
}

// Nor does a step that stays where it is commit twice.
func TestCommit_lostOfAStepToItsOwnPoint(t *testing.T) {
	t.Parallel()
	b, proxy := proxied(t)
	for name, fault := range faults {
		for commit := 2; commit <= 4; commit++ {
			t.Run(fmt.Sprintf("%s COMMIT %d", name, commit), func(t *testing.T) {
				req := b.request()
				proxy.Strike(commit, fault)
				_, err := b.do(req, looping())
				require.NoError(t, err)
				require.Equal(t, afterLooping, b.effects(req))
			})
		}
	}
}

// A transaction that is late in reaching the server, when the one in its place
// is through, is refused: also where token and recovery point are still the same.
func TestCommit_late(t *testing.T) {
	t.Parallel()
	for commit := 2; commit <= 4; commit++ {
		t.Run(fmt.Sprintf("COMMIT %d", commit), func(t *testing.T) {
			t.Parallel()
			proxy := idempotencytest.NewProxy(t)
			b := newBench(t, connections(2), proxy.Configure)
			req := b.request()
			proxy.Strike(commit, idempotencytest.HoldBatch)
			result, err := b.do(req, looping())
			require.NoError(t, err)
			before := b.row(req)
			proxy.Release()
			require.Eventually(t, func() bool { return proxy.Held() == 0 }, patience, tick)
			require.Equal(t, before, b.row(req))
			require.Equal(t, afterLooping, b.effects(req))
			require.Equal(t, 201, result.Response.Status)
		})
	}
}

// What no standby has confirmed is not reported as done (R22). The key goes on
// from where it is.
func TestCommit_notReplicated(t *testing.T) {
	t.Parallel()
	b, proxy := proxied(t)
	for commit, left := range []string{string(reserved), string(paid), string(idempotency.Finished)} {
		t.Run(left, func(t *testing.T) {
			req, op := b.request(), &threeSteps{}
			proxy.Strike(commit+1, idempotencytest.NotReplicated)
			result, err := b.do(req, op)
			require.ErrorIs(t, err, postgres.ErrUnavailable)
			require.ErrorContains(t, err, "not replicated")
			require.Zero(t, result.Response)
			require.True(t, proxy.Struck())
			state := b.state(req)
			require.Equal(t, left, state.Point)
			require.False(t, state.Leased)
			require.Equal(t, left == string(idempotency.Finished), state.LastError == nil)

			result, err = b.do(req, op)
			require.NoError(t, err)
			require.Equal(t, 201, result.Response.Status)
			require.Equal(t, onceEach, b.effects(req))
			require.EqualValues(t, 2, op.calls.Load())
		})
	}
}

// The warning of one statement does not stick to the connection.
func TestCommit_warningOfAnEarlierStatement(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	req, op := b.request(), &threeSteps{}
	op.reserve = func(context.Context, *idempotency.Run) error {
		_, err := b.pool.Exec(t.Context(), `DO $$ BEGIN RAISE WARNING 'canceling wait for synchronous replication'; END $$`)
		return err
	}
	_, err := b.do(req, op)
	require.NoError(t, err)
}

// While a COMMIT is still on its way nobody can say what becomes of it: the run
// says so, and others wait. It may come through at any time, once.
func TestCommit_underWay(t *testing.T) {
	t.Parallel()
	for commit, at := range []string{"", string(reserved), string(paid)} {
		t.Run(fmt.Sprintf("COMMIT %d", commit+1), func(t *testing.T) {
			t.Parallel()
			proxy := idempotencytest.NewProxy(t)
			b := newBench(t, connections(2), proxy.Configure, sessionSetting("lock_timeout", "100"))
			req, op := b.request(), &threeSteps{}
			proxy.Strike(commit+1, idempotencytest.HoldCommit)
			result, err := b.do(req, op)
			require.Error(t, err)
			require.Zero(t, result.Response)
			if commit == 0 {
				require.ErrorIs(t, err, idempotency.ErrInProgress) // the claim waits for itself
				require.Empty(t, b.row(req))
			} else {
				require.ErrorIs(t, err, postgres.ErrUnavailable)
				require.NotErrorIs(t, err, idempotency.ErrInProgress)
				require.Equal(t, keyState{Point: at, Leased: true, Attempt: 1}, b.state(req))
			}
			_, err = b.do(req, op)
			require.ErrorIs(t, err, idempotency.ErrInProgress)

			before := b.row(req)
			proxy.Release()
			require.Eventually(t, func() bool { return b.row(req) != before }, patience, tick)
			if commit < 2 {
				idempotencytest.AgeLease(t, b.pool, b.account, idempotency.KeyID(b.account, req.Key), 2*lockTimeout)
			}
			result, err = b.do(req, op)
			require.NoError(t, err)
			require.Equal(t, 201, result.Response.Status)
			require.EqualValues(t, 2, op.calls.Load())
			require.Equal(t, onceEach, b.effects(req))
			require.Zero(t, proxy.Cancels())
		})
	}
}

// A run that is still there when its COMMIT comes through goes on.
func TestCommit_comesThroughLate(t *testing.T) {
	t.Parallel()
	for commit := 1; commit <= 3; commit++ {
		t.Run(fmt.Sprintf("COMMIT %d", commit), func(t *testing.T) {
			t.Parallel()
			proxy := idempotencytest.NewProxy(t)
			b := newBench(t, connections(3), proxy.Configure, sessionSetting("lock_timeout", "30000"))
			req, op := b.request(), &threeSteps{}
			proxy.Strike(commit, idempotencytest.HoldCommit)
			var result idempotency.Result
			done := make(chan error)
			go func() {
				var err error
				result, err = b.do(req, op)
				done <- err
			}()
			require.Eventually(t, func() bool {
				var waiting bool
				err := b.pool.QueryRow(t.Context(), `
SELECT EXISTS (
    SELECT
      FROM pg_stat_activity
     WHERE datname = current_database()
       AND wait_event_type = 'Lock'
)`).Scan(&waiting)
				return err == nil && waiting
			}, patience, tick)
			proxy.Release()
			require.NoError(t, <-done)
			require.Equal(t, 201, result.Response.Status)
			require.EqualValues(t, 2, op.calls.Load())
			require.Equal(t, onceEach, b.effects(req))
		})
	}
}
