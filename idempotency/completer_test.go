package idempotency_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
)

func TestNewCompleter_invalidConfig(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	complete := idempotency.CompleterConfig{Grace: grace, MaxAttempts: 1, ActionTimeout: actionTimeout, Limit: 1, Concurrency: 1}
	for want, change := range map[string]func(*idempotency.CompleterConfig){
		"the grace of 1m0s must be more than the lease of 1m0s (R9)":          func(c *idempotency.CompleterConfig) { c.Grace = lockTimeout },
		"the action timeout of 1m0s must be more than the lease of 1m0s (R9)": func(c *idempotency.CompleterConfig) { c.ActionTimeout = lockTimeout },
		"MaxAttempts, Limit":           func(c *idempotency.CompleterConfig) { c.MaxAttempts = 0 },
		"Limit and":                    func(c *idempotency.CompleterConfig) { c.Limit = 0 },
		"Concurrency must be positive": func(c *idempotency.CompleterConfig) { c.Concurrency = -1 },
	} {
		config := complete
		change(&config)
		_, err := idempotency.NewCompleter(f.engine, []idempotency.Operation{oneStep()}, config)
		require.ErrorContains(t, err, want)
	}
}

func TestCompleter_selection(t *testing.T) {
	t.Parallel()
	const old = 2 * grace
	tests := []struct {
		name   string
		state  idempotencytest.State
		ago    time.Duration // since the last run
		update string
		calls  int64 // 0: the key stays unchanged
	}{
		{name: "released at the first call", state: idempotencytest.State{Point: reserved}, ago: old, calls: 2},
		{name: "released at the second call", state: released, ago: old, calls: 1},
		{name: "a second past the grace", state: released, ago: grace + time.Second, calls: 1},
		{name: "run died in the first call", state: idempotencytest.State{Point: reserved, Leased: true, LeaseAge: old}, ago: old, calls: 2},
		{name: "run died in the second call", state: idempotencytest.State{Point: paid, Leased: true, LeaseAge: old}, ago: old, calls: 1},
		{name: "lease has just expired", state: idempotencytest.State{Point: paid, Leased: true, LeaseAge: lockTimeout + time.Second}, ago: old, calls: 1},

		{name: "just released", state: released},
		{name: "within the grace", state: released, ago: grace - 30*time.Second},
		{name: "lease expired, within the grace", state: expired, ago: 2 * lockTimeout},
		{name: "leased", state: leased},
		{name: "leased by a long run", state: idempotencytest.State{Point: paid, Leased: true, LeaseAge: lockTimeout - 30*time.Second}, ago: old},
		{name: "needs review", state: released, ago: old, update: "needs_review_at = now()"},
		{name: "finished", state: finished, update: "last_run_at = now() - interval '1 day'"},
	}
	shared := newFixture(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			op := &threeSteps{}
			f := newCompleterFixture(shared, op)
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
			require.Equal(t, keyState{Point: "finished", Attempt: 2}, f.state(req))
			require.Equal(t, completerState{Attempts: 1}, f.completerState(req))
			require.Equal(t, 1, f.log.count("level=INFO msg=\"abandoned key completed\""))
			require.Equal(t, 1, strings.Count(f.log.String(), "\n"))

			again := f.mustDo(req, op)
			require.True(t, again.Replayed, "the client's retry gets the response")
			require.Zero(t, f.pass())
		})
	}
	shared.requireIdle()
}

func TestCompleter_oldestFirst(t *testing.T) {
	t.Parallel()
	var order []idempotency.Key
	op := &threeSteps{pay: func(_ context.Context, run *idempotency.Run) error {
		order = append(order, run.Key)
		return nil
	}}
	f := newCompleterFixture(newFixture(t), op)
	var keys []idempotency.Key
	for _, ago := range []time.Duration{20, 60, 40, 10, 50, 30} {
		keys = append(keys, f.putAbandoned(op, released, ago*time.Minute).Key)
	}
	f.config.Limit = 4
	require.Equal(t, idempotency.CompleterResult{Completed: 4}, f.pass())
	require.Equal(t, []idempotency.Key{keys[1], keys[4], keys[2], keys[5]}, order)
	require.Equal(t, idempotency.CompleterResult{Completed: 2}, f.pass(), "the rest, beyond the limit of the first pass")
	require.Equal(t, []idempotency.Key{keys[0], keys[3]}, order[4:])
}

// The many keys of one account do not delay those of another one, abandoned or waiting
// for an action.
func TestCompleter_accountsInTurn(t *testing.T) {
	t.Parallel()
	const waiting = "action_required_at = now()"
	var order []uuid.UUID
	op := &threeSteps{pay: func(_ context.Context, run *idempotency.Run) error {
		order = append(order, run.AccountID)
		return nil
	}}
	f := newCompleterFixture(newFixture(t), op)
	f.config.Limit = 5
	other, third := idempotencytest.Account(t, f.pool), idempotencytest.Account(t, f.pool)
	for _, update := range []string{"", waiting} {
		for range 2 * f.config.Limit {
			f.putChanged(op, released, 48*time.Hour, update)
		}
	}
	mine := f.account
	f.account = other
	f.putAbandoned(op, released, 24*time.Hour)
	f.account = third
	f.putChanged(op, released, 24*time.Hour, waiting)

	require.Equal(t, idempotency.CompleterResult{Completed: 2 * f.config.Limit}, f.pass())
	require.ElementsMatch(t, []uuid.UUID{mine, mine, other, third}, order[:4])
}

// A failing key does not delay the others, and needs review after its last attempt
// (R16).
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
			bad := f.putAbandoned(failing, released, 48*time.Hour) // before all others
			for attempt := 1; attempt <= maxAttempts; attempt++ {
				for range 3 {
					f.putAbandoned(good, idempotencytest.State{Point: reserved}, 2*grace)
				}
				want := idempotency.CompleterResult{Completed: 3, Failed: 1}
				if attempt == maxAttempts {
					want = idempotency.CompleterResult{Completed: 3, NeedsReview: 1}
				}
				require.Equal(t, want, f.pass())
				require.Equal(t, completerState{Attempts: attempt, NeedsReview: attempt == maxAttempts}, f.completerState(bad))
				require.Equal(t, keyState{Point: string(paid), Attempt: 1 + attempt, LastError: &lastError}, f.state(bad),
					"the recovery point stays")
				require.Zero(t, f.pass(), "the backoff begins with the attempt")
				require.Equal(t, min(attempt, maxAttempts-1), f.log.count("level=WARN"))
				require.Equal(t, attempt/maxAttempts, f.log.count("level=ERROR"))
				f.ageRun(bad, 48*time.Hour)
			}
			require.Contains(t, f.log.String(), `level=ERROR msg="abandoned key needs review, no attempts are left" account_id=`+f.account.String()+
				" key_id="+keyID(bad).String())
			require.NotContains(t, f.log.String(), string(bad.Key), "the idempotency key is the client's secret")

			require.Zero(t, f.pass(), "a key that needs review is not resumed")
			require.EqualValues(t, maxAttempts, failing.calls.Load())
			f.requireIdle()
		})
	}
}

func TestCompleter_processDiedInLastAttempt(t *testing.T) {
	t.Parallel()
	op := &threeSteps{}
	f := newCompleterFixture(newFixture(t), op)
	req := f.putAbandoned(op, released, 2*grace)
	f.update(req, "completer_attempt = $3, last_run_at = now() - interval '1 day'", maxAttempts)
	require.Equal(t, idempotency.CompleterResult{NeedsReview: 1}, f.pass())
	require.Zero(t, op.calls.Load(), "a run that may have killed a process is not repeated")
	require.True(t, f.completerState(req).NeedsReview)
	require.Equal(t, 1, f.log.count("level=ERROR"))
}

func TestCompleter_markFails(t *testing.T) {
	t.Parallel()
	var unlock func()
	op := &threeSteps{}
	f := newCompleterFixture(newFixture(t, sessionSetting("lock_timeout", "50")), op)
	f.config.MaxAttempts = 1
	req := f.putAbandoned(op, released, 2*grace)
	op.pay = func(context.Context, *idempotency.Run) error {
		unlock = f.otherTransaction("SELECT FROM idempotency_keys FOR UPDATE")
		return errNoResponse
	}
	require.Equal(t, idempotency.CompleterResult{NeedsReview: 1}, f.pass())
	unlock()
	require.Equal(t, completerState{Attempts: 1}, f.completerState(req))
	require.Equal(t, 2, f.log.count("level=ERROR"))

	f.ageRun(req, 2*grace)
	f.ageLease(req, 2*lockTimeout) // it could not be released either
	require.Equal(t, idempotency.CompleterResult{NeedsReview: 1}, f.pass())
	require.Equal(t, completerState{Attempts: 2, NeedsReview: true}, f.completerState(req))
	require.EqualValues(t, 1, op.calls.Load())
}

// The three queries list abandoned keys, keys that require an action and polled keys.
func TestCompleter_noCandidates(t *testing.T) {
	t.Parallel()
	meter := idempotencytest.NewMeter()
	f := newCompleterFixture(newFixture(t, meter.Configure), oneStep())
	require.Zero(t, f.pass()) // prepares the statements
	meter.Reset()
	require.Zero(t, f.pass())
	require.Equal(t, 3, meter.RoundTrips())
	require.Zero(t, meter.Commits())
}

// No command changes a key of a newer version, its counters included (R18). Operators
// see it, and such keys do not use up the limit of a pass.
func TestCompleter_newerVersion(t *testing.T) {
	t.Parallel()
	op, waiting := &threeSteps{}, "action_required_at = now(), "
	f := newCompleterFixture(newFixture(t), op)
	f.config.MaxAttempts, f.config.Limit = 1, 1
	const polled = ", attempt = 1000, last_run_at = now(), created_at = now() - interval '31 hours'"
	for name, update := range map[string]string{
		"recovery point":            "recovery_point = 'captured'",
		"operation":                 "operation = 'three_steps_2'",
		"fingerprint":               "params_hash = set_byte(params_hash, 0, 2)",
		"point, requires an action": waiting + "recovery_point = 'captured'",
		"polled":                    "recovery_point = 'captured'" + polled,
		"needs review":              "recovery_point = 'captured', needs_review_at = now()",
	} {
		t.Run(name, func(t *testing.T) {
			req := f.putChanged(op, released, 48*time.Hour, update)
			before := f.row(req)
			require.Zero(t, f.pass())
			require.NoError(t, f.engine.Requeue(t.Context(), req.AccountID, keyID(req), f.operations))
			_, err := f.resume(req, op)
			require.ErrorIs(t, err, idempotency.ErrNewerVersion)
			require.Equal(t, before, f.row(req))
		})
	}
	require.Zero(t, op.calls.Load())
	require.Len(t, f.stuck(10), 4, "without the polled key and the one that requires an action")

	f.putAbandoned(op, released, 2*grace)
	require.Equal(t, idempotency.CompleterResult{Completed: 1}, f.pass())
}

// The pass claims no more keys, because each claim might fail only after a timeout.
func TestCompleter_databaseFails(t *testing.T) {
	t.Parallel()
	good := operation{name: "good", steps: (&threeSteps{}).Steps}
	last := beforeRecord(&threeSteps{}, paid, func(_ context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
		tx.Queue("ALTER TABLE idempotency_keys RENAME completer_attempt TO renamed")
		return nil
	})
	statements := &statements{}
	f := newCompleterFixture(newFixture(t, statements.configure), good, last)
	f.putAbandoned(good, idempotencytest.State{Point: reserved}, 5*grace)
	f.putAbandoned(last, idempotencytest.State{Point: reserved}, 4*grace)
	for range 5 {
		f.putAbandoned(good, idempotencytest.State{Point: reserved}, 3*grace)
	}
	result, err := f.completer().RunOnce(t.Context())
	require.ErrorContains(t, err, "claim abandoned key: ")
	require.ErrorContains(t, err, "completer_attempt")
	require.Equal(t, idempotency.CompleterResult{Completed: 2}, result)
	require.Equal(t, 3, statements.containing("SET completer_attempt = completer_attempt +"))
	require.Equal(t, 2, f.countKeys("recovery_point = 'finished'"))
	f.requireIdle()

	statements.reset()
	_, err = f.completer().RunOnce(t.Context())
	require.ErrorContains(t, err, "list abandoned keys: ")
	require.Equal(t, 1, statements.containing(""))
}

func TestRequeue_states(t *testing.T) {
	t.Parallel()
	op := failingToPay()
	f := newCompleterFixture(newFixture(t), op)
	requeue := func(req idempotency.Request) {
		require.NoError(t, f.engine.Requeue(t.Context(), req.AccountID, keyID(req), f.operations))
	}
	const marked = "needs_review_at = now(), completer_attempt = 3"
	req := f.putChanged(op, released, 2*grace, marked)
	other := f.putChanged(op, released, 2*grace, marked)
	requeue(req)
	require.Zero(t, f.completerState(req))
	require.Equal(t, completerState{Attempts: 3, NeedsReview: true}, f.completerState(other))
	require.Equal(t, idempotency.CompleterResult{Failed: 1}, f.pass(), "the completer has all its attempts again")

	done := f.putChanged(op, finished, 0, "")
	before := f.row(done)
	requeue(done)
	require.Equal(t, before, f.row(done))
	requeue(f.request()) // an unknown key is no error
}
