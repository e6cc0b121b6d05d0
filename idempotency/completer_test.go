package idempotency_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
)

const (
	grace         = 5 * time.Minute
	actionTimeout = 24 * time.Hour
)

type completerFixture struct {
	*fixture
	log    *bytes.Buffer
	config idempotency.CompleterConfig
}

func newCompleterFixture(f *fixture, operations ...idempotency.Operation) *completerFixture {
	f.t.Helper()
	log := &bytes.Buffer{}
	engine := newEngine(f.t, f.pool, func(c *idempotency.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	engine.Register(operations...)
	return &completerFixture{
		fixture: &fixture{t: f.t, pool: f.pool, engine: engine, account: f.account},
		log:     log,
		config:  idempotency.CompleterConfig{Grace: grace, ActionTimeout: actionTimeout, Batch: 100, Concurrency: 1},
	}
}

func (f *completerFixture) completer() *idempotency.Completer {
	f.t.Helper()
	return idempotency.NewCompleter(f.engine, f.config)
}

func (f *completerFixture) pass() idempotency.CompleterResult {
	f.t.Helper()
	result, err := f.completer().RunOnce(f.t.Context())
	require.NoError(f.t, err)
	return result
}

func failingToPay() *threeSteps {
	return &threeSteps{pay: func(context.Context, *idempotency.Run) error { return errNoResponse }}
}

func (f *fixture) putAbandoned(op idempotency.Operation, state given, ago time.Duration) idempotency.Request {
	f.t.Helper()
	return f.putChanged(op, state, ago, "")
}

func (f *fixture) putChanged(op idempotency.Operation, state given, ago time.Duration, columns string) idempotency.Request {
	f.t.Helper()
	req := f.request()
	f.put(req, op, state)
	if ago > 0 {
		f.ageRun(req, ago)
	}
	if columns != "" {
		f.update(req, columns)
	}
	return req
}

func (f *fixture) countKeys(condition string) int {
	f.t.Helper()
	var n int
	require.NoError(f.t, f.pool.QueryRow(f.t.Context(), "SELECT count(*) FROM idempotency_keys WHERE "+condition).Scan(&n))
	return n
}

// The i-th key was finished i milliseconds after ago.
func (f *fixture) insertFinished(n int, ago time.Duration) {
	f.t.Helper()
	_, err := f.pool.Exec(f.t.Context(), `
INSERT INTO idempotency_keys (
    id, account_id, idempotency_key, operation, request_method, request_path, request_params, fingerprint, recovery_point,
    lease_token, runs, updated_at, created_at, finished_at, response_code, response_headers, response_body
)
SELECT gen_random_uuid(), $1, 'one-of-many-' || gen_random_uuid(), 'things', 'POST', '/v1/things', '{}', decode(repeat('01', 33), 'hex'), 'finished',
       gen_random_uuid(), 1, at, at, at, 200, '{}', ''
  FROM generate_series(1, $2) AS i,
       LATERAL (SELECT now() - $3::interval + i * interval '1 millisecond') AS t (at)`, f.account, n, ago)
	require.NoError(f.t, err)
}

func TestCompleter_selection(t *testing.T) {
	t.Parallel()
	const (
		old   = 2 * grace
		ahead = "created_at = now() + interval '400 days', updated_at = now() + interval '400 days'"
	)
	tests := []struct {
		name   string
		state  given
		ago    time.Duration // since the last run
		update string
		calls  int64
	}{
		// No command changes a key of a newer version, nor does it use up the limit of the passes below.
		{name: "at an unknown recovery point", state: released, ago: 48 * time.Hour, update: "recovery_point = 'captured'"},
		{name: "of an unknown operation", state: released, ago: 48 * time.Hour, update: "operation = 'three_steps_2'"},
		{name: "at an unknown point, requires an action", state: released, ago: 48 * time.Hour, update: "recovery_point = 'captured', action_required_at = now()"},

		{name: "released at the first call", state: given{Point: reserved}, ago: old, calls: 2},
		{name: "released at the second call", state: released, ago: old, calls: 1},
		{name: "a second past the grace", state: released, ago: grace + time.Second, calls: 1},
		{name: "run died in the second call", state: given{Point: paid, Leased: true, LeaseAge: old}, ago: old, calls: 1},
		{name: "lease has just expired", state: given{Point: paid, Leased: true, LeaseAge: leaseDuration + time.Second}, ago: old, calls: 1},
		{name: "leased by a clock that ran ahead", state: given{Point: paid, Leased: true, LeaseAge: -old}, update: ahead, calls: 1},
		{name: "released by a clock that ran ahead", state: released, update: ahead, calls: 1},

		{name: "within the grace", state: released, ago: grace - 30*time.Second},
		{name: "lease expired, within the grace", state: expired, ago: 2 * leaseDuration},
		{name: "leased", state: leased},
		{name: "finished", state: finished, update: "updated_at = now() - interval '1 day'"},
	}
	shared := newFixture(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			op := &threeSteps{}
			f := newCompleterFixture(shared, op)
			f.config.Batch = 4
			req := f.putChanged(op, test.state, test.ago, test.update)
			before := f.row(req)
			result := f.pass()
			require.Equal(t, test.calls, op.calls.Load())
			if test.calls == 0 {
				require.Zero(t, result)
				require.Equal(t, before, f.row(req))
				require.Empty(t, f.log.String())
				return
			}
			require.Equal(t, idempotency.CompleterResult{Completed: 1}, result)
			require.Equal(t, keyState{Point: "finished", Runs: 2}, f.state(req))
			require.Equal(t, 1, strings.Count(f.log.String(), "level=INFO msg=\"abandoned key completed\""))
			require.Equal(t, 1, strings.Count(f.log.String(), "\n"))

			again := f.mustDo(req, op)
			require.True(t, again.Replayed, "the client's retry gets the response")
			require.Zero(t, f.pass())
		})
	}
	shared.requireIdle()
}

func TestCompleter_keyThatAlwaysFails(t *testing.T) {
	t.Parallel()
	for lastError, pay := range map[string]func(context.Context, *idempotency.Run) error{
		errNoResponse.Error(): func(context.Context, *idempotency.Run) error { return errNoResponse },
		"the run panicked":    func(_ context.Context, run *idempotency.Run) error { panic("on " + run.KeyID.String()) },
	} {
		t.Run(lastError, func(t *testing.T) {
			t.Parallel()
			failing, good := &threeSteps{pay: pay}, operation{name: "good", steps: (&threeSteps{}).Steps}
			f := newCompleterFixture(newFixture(t), failing, good)
			bad := f.putAbandoned(failing, released, 48*time.Hour)
			for attempt := 1; attempt <= 5; attempt++ {
				for range 3 {
					f.putAbandoned(good, given{Point: reserved}, 2*grace)
				}
				require.Equal(t, idempotency.CompleterResult{Completed: 3, Failed: 1}, f.pass())
				require.Equal(t, keyState{Point: string(paid), Runs: 1 + attempt, LastError: &lastError}, f.state(bad),
					"the recovery point stays")
				require.Zero(t, f.pass(), "the pause begins before the run")
				require.Equal(t, attempt, strings.Count(f.log.String(), "level=WARN"))
				f.ageRun(bad, 48*time.Hour)
			}
			require.NotContains(t, f.log.String(), string(bad.Key), "the idempotency key is the client's secret")
			f.requireIdle()
		})
	}
}

func TestCompleter_databaseFails(t *testing.T) {
	t.Parallel()
	good := operation{name: "good", steps: (&threeSteps{}).Steps}
	last := beforeRecord(&threeSteps{}, paid, func(_ context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
		tx.Queue("ALTER TABLE idempotency_keys RENAME updated_at TO renamed")
		return nil
	})
	f := newCompleterFixture(newFixture(t), good, last)
	f.putAbandoned(good, given{Point: reserved}, 5*grace)
	f.putAbandoned(last, given{Point: reserved}, 4*grace)
	for range 5 {
		f.putAbandoned(good, given{Point: reserved}, 3*grace)
	}
	result, err := f.completer().RunOnce(t.Context())
	require.ErrorContains(t, err, "claim abandoned key: ")
	require.ErrorContains(t, err, "updated_at")
	require.Equal(t, idempotency.CompleterResult{Completed: 2}, result)
	require.Equal(t, 2, f.countKeys("recovery_point = 'finished'"))
	f.requireIdle()
}

// The pause is as long as the key was old at its last run.
func TestCompleter_pauseGrows(t *testing.T) {
	t.Parallel()
	op := &threeSteps{}
	f := newCompleterFixture(newFixture(t), op)
	for _, test := range []struct{ age, pause time.Duration }{ // age at the last run
		{0, grace},
		{grace - time.Second, grace},
		{20 * time.Minute, 20 * time.Minute},
		{time.Hour, time.Hour},
		{30 * 24 * time.Hour, time.Hour},
		{-time.Hour, grace}, // created by a clock ahead
	} {
		req := f.putAbandoned(op, released, 0)
		f.update(req, "created_at = updated_at - $3::interval", test.age)
		f.update(req, "created_at = created_at - $3::interval, updated_at = updated_at - $3::interval", test.pause-30*time.Second)
		require.Zero(t, f.pass(), "%v: too early", test)
		f.update(req, "created_at = created_at - interval '31 seconds', updated_at = updated_at - interval '31 seconds'")
		require.Equal(t, idempotency.CompleterResult{Completed: 1}, f.pass(), "%v: due", test)
	}
}

// However many old keys hang, half of each batch belongs to the keys that are younger than an hour, and half of
// either half to those that wait for an action.
func TestCompleter_oldKeysDoNotDelayYoungOnes(t *testing.T) {
	t.Parallel()
	var order []idempotency.Key
	op := &threeSteps{pay: func(_ context.Context, run *idempotency.Run) error {
		order = append(order, run.Key)
		return errNoResponse
	}}
	f := newCompleterFixture(newFixture(t), op)
	f.config.Batch = 8
	const waits = "action_required_at = now()"
	for range 20 {
		f.putChanged(op, released, 24*time.Hour, "created_at = now() - interval '2 days'")
		f.putChanged(op, released, 24*time.Hour, "created_at = now() - interval '2 days', "+waits)
	}
	for range 2 {
		f.putAbandoned(op, released, 2*grace)
		f.putChanged(op, released, 4*grace, waits)
	}
	young := map[idempotency.Key]bool{}
	keys, err := f.engine.Unfinished(t.Context())
	require.NoError(t, err)
	for _, key := range keys {
		young[key.Key] = time.Since(key.CreatedAt) < time.Hour
	}
	require.Equal(t, idempotency.CompleterResult{Failed: 44}, f.pass())
	count := 0
	for _, key := range order[:f.config.Batch] {
		if young[key] {
			count++
		}
	}
	require.Equal(t, 4, count, "all four are in the first batch")
}

func untilPaid(isPaid *bool, failure *error) *threeSteps {
	return &threeSteps{pay: func(context.Context, *idempotency.Run) error {
		switch {
		case *failure != nil:
			return *failure
		case !*isPaid:
			return fmt.Errorf("the customer is absent: %w", idempotency.ErrActionRequired)
		default:
			return nil
		}
	}}
}

func TestCompleter_actionTimeout(t *testing.T) {
	t.Parallel()
	const limit = actionTimeout - leaseDuration
	for name, test := range map[string]struct {
		age, lastRun time.Duration
		due          bool
	}{
		"before the timeout":                 {limit - 10*time.Second, 2 * grace, false},
		"before it, long ago":                {limit - 10*time.Second, 4 * grace, true},
		"no run since the timeout":           {limit + 10*time.Second, 11 * time.Second, true},
		"run since the timeout":              {limit + 10*time.Second, 9 * time.Second, false},
		"run since, within the grace":        {limit + time.Hour, grace - 10*time.Second, false},
		"no run since the timeout, long ago": {limit + time.Hour, 2 * time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			op := untilPaid(new(bool), new(error))
			f := newCompleterFixture(newFixture(t), op)
			req := f.putAbandoned(op, released, 0)
			f.update(req, "action_required_at = now(), created_at = now() - $3::interval, updated_at = now() - $4::interval", test.age, test.lastRun)
			want := idempotency.CompleterResult{}
			if test.due {
				want.ActionRequired = 1
			}
			require.Equal(t, want, f.pass())
			require.Zero(t, f.pass(), "once per grace")
		})
	}
}

func TestCompleter_actionRequired(t *testing.T) {
	t.Parallel()
	var isPaid bool
	var failure error
	op := untilPaid(&isPaid, &failure)
	f := newCompleterFixture(newFixture(t), op)
	req := f.request()
	_, err := f.do(req, op)
	require.ErrorIs(t, err, idempotency.ErrActionRequired)
	stats, err := idempotency.ReadStats(t.Context(), f.pool)
	require.NoError(t, err)
	require.Positive(t, stats.OldestUnfinished)
	require.Empty(t, stats.Unfinished)

	f.ageRun(req, 2*grace)
	require.Zero(t, f.pass(), "too early")
	for range 3 {
		f.ageRun(req, 4*grace)
		require.Equal(t, idempotency.CompleterResult{ActionRequired: 1}, f.pass())
		require.Zero(t, f.pass(), "too early")
	}

	failure = errNoResponse
	f.ageRun(req, 4*grace)
	require.Equal(t, idempotency.CompleterResult{Failed: 1}, f.pass())
	f.ageRun(req, 48*time.Hour)
	require.Equal(t, idempotency.CompleterResult{Failed: 1}, f.pass())

	failure = nil
	_, err = f.do(req, op)
	require.ErrorIs(t, err, idempotency.ErrActionRequired)
	isPaid = true
	f.ageRun(req, 4*grace)
	require.Equal(t, idempotency.CompleterResult{Completed: 1}, f.pass())
	require.Equal(t, onceEach, f.effects(req))
	f.requireIdle()
}

// Completers and clients that run the same keys finish each of them once.
func TestCompleter_concurrent(t *testing.T) {
	t.Parallel()
	const keys, completers = 40, 5
	op := &threeSteps{}
	f := newCompleterFixture(newFixture(t, connections(8)), op)
	f.config.Concurrency = 3
	var completed atomic.Int64
	var all sync.WaitGroup
	var requests []idempotency.Request
	for i := range keys {
		requests = append(requests, f.putAbandoned(op, []given{expired, {Point: reserved}}[i%2], 2*grace))
	}
	for range completers {
		all.Go(func() {
			result, err := f.completer().RunOnce(t.Context())
			if err != nil || result.Failed > 0 {
				t.Error(result, err)
			}
			completed.Add(int64(result.Completed))
		})
	}
	for _, req := range requests {
		all.Go(func() {
			result, err := f.do(req, op)
			if err != nil && !errors.Is(err, idempotency.ErrInProgress) {
				t.Error(err)
			}
			if err == nil && !result.Replayed {
				completed.Add(1)
			}
		})
	}
	all.Wait()
	for _, req := range requests {
		require.True(t, f.mustDo(req, op).Replayed)
		require.Subset(t, onceEach, f.effects(req))
	}
	require.EqualValues(t, keys, completed.Load(), "each key was finished by one run")
	require.EqualValues(t, keys/2*(1+2), op.calls.Load())
	f.requireIdle()
}

func TestCompleter_changedSinceListed(t *testing.T) {
	t.Parallel()
	var change func()
	op := &threeSteps{}
	first := operation{name: "first", steps: (&threeSteps{pay: func(context.Context, *idempotency.Run) error {
		change()
		return nil
	}}).Steps}
	f := newCompleterFixture(newFixture(t), op, first)
	for name, test := range map[string]func(req idempotency.Request){
		"finished by a client": func(req idempotency.Request) { f.mustDo(req, op) },
		"tried by a client": func(req idempotency.Request) {
			_, err := f.do(req, failingToPay())
			require.ErrorIs(t, err, errNoResponse)
		},
		"leased by a client":         func(req idempotency.Request) { f.update(req, "locked_at = now()") },
		"tried by another completer": func(req idempotency.Request) { f.update(req, "updated_at = now()") },
		"reaped": func(req idempotency.Request) {
			_, err := f.pool.Exec(t.Context(), "DELETE FROM idempotency_keys WHERE id = $1", keyID(req))
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			changed := f.putAbandoned(op, released, 2*grace)
			var left string
			change = func() {
				test(changed)
				left = f.row(changed)
			}
			f.putAbandoned(first, released, 3*grace)
			require.Equal(t, idempotency.CompleterResult{Completed: 1, Skipped: 1}, f.pass())
			require.Equal(t, left, f.row(changed))
		})
	}
}

func TestCompleter_rowLocked(t *testing.T) {
	t.Parallel()
	op := &threeSteps{}
	f := newCompleterFixture(newFixture(t, sessionSetting("lock_timeout", "50")), op)
	locked := f.putAbandoned(op, released, 3*grace)
	free := f.putAbandoned(op, released, 2*grace)
	before := f.row(locked)
	unlock := f.otherTransaction("SELECT FROM idempotency_keys WHERE idempotency_key = $1 FOR NO KEY UPDATE", string(locked.Key))
	require.Equal(t, idempotency.CompleterResult{Completed: 1, Skipped: 1}, f.pass())
	require.Equal(t, before, f.row(locked))
	require.Equal(t, "finished", f.state(free).Point)
	unlock()
	require.Equal(t, idempotency.CompleterResult{Completed: 1}, f.pass())
}

func TestCompleter_cancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	op := &threeSteps{reserve: func(context.Context, *idempotency.Run) error {
		cancel()
		return nil
	}}
	f := newCompleterFixture(newFixture(t), op)
	for range 10 {
		f.putAbandoned(op, given{Point: reserved}, 2*grace)
	}
	result, err := f.completer().RunOnce(ctx)
	require.NoError(t, err)
	require.Equal(t, idempotency.CompleterResult{Completed: 1}, result)
	require.Equal(t, 1, f.countKeys("recovery_point = 'finished'"))

	result, err = f.completer().RunOnce(ctx)
	require.NoError(t, err)
	require.Zero(t, result)
	require.Zero(t, strings.Count(f.log.String(), "level=ERROR"))
}
