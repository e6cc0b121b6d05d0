package idempotency_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
)

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
			require.Equal(t, 1, f.log.count("level=INFO msg=\"abandoned key completed\""))
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
				require.Equal(t, attempt, f.log.count("level=WARN"))
				f.ageRun(bad, 48*time.Hour)
			}
			require.NotContains(t, f.log.String(), string(bad.Key), "the idempotency key is the client's secret")
			f.requireIdle()
		})
	}
}

// No command changes a key of a newer version, nor does it use up the limit of a pass.
func TestCompleter_newerVersion(t *testing.T) {
	t.Parallel()
	op, waiting := &threeSteps{}, "action_required_at = now(), "
	f := newCompleterFixture(newFixture(t), op)
	f.config.Batch = 4
	for name, update := range map[string]string{
		"recovery point":            "recovery_point = 'captured'",
		"operation":                 "operation = 'three_steps_2'",
		"point, requires an action": waiting + "recovery_point = 'captured'",
	} {
		t.Run(name, func(t *testing.T) {
			req := f.putChanged(op, released, 48*time.Hour, update)
			before := f.row(req)
			require.Zero(t, f.pass())
			require.Equal(t, before, f.row(req))
		})
	}
	require.Zero(t, op.calls.Load())

	f.putAbandoned(op, released, 2*grace)
	require.Equal(t, idempotency.CompleterResult{Completed: 1}, f.pass())
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
