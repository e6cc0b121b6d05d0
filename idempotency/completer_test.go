package idempotency_test

import (
	"cmp"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
)

func TestCompleter_selection(t *testing.T) {
	t.Parallel()
	const (
		old   = 2 * grace
		ahead = "created_at = now() + interval '400 days', last_run_at = now() + interval '400 days'"
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
		{name: "lease has just expired", state: given{Point: paid, Leased: true, LeaseAge: lockTimeout + time.Second}, ago: old, calls: 1},
		{name: "leased by a clock that ran ahead", state: given{Point: paid, Leased: true, LeaseAge: -old}, update: ahead, calls: 1},
		{name: "released by a clock that ran ahead", state: released, update: ahead + ", completer_attempt = 0", calls: 1},

		{name: "within the grace", state: released, ago: grace - 30*time.Second},
		{name: "lease expired, within the grace", state: expired, ago: 2 * lockTimeout},
		{name: "leased", state: leased},
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

func TestCompleter_accountsInTurn(t *testing.T) {
	t.Parallel()
	const waiting = "action_required_at = now()"
	var order []uuid.UUID
	var first idempotency.Key
	op := &threeSteps{pay: func(_ context.Context, run *idempotency.Run) error {
		order, first = append(order, run.AccountID), cmp.Or(first, run.Key)
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
	oldest := f.putAbandoned(op, released, 72*time.Hour)
	mine := f.account
	f.account = other
	f.putAbandoned(op, released, 24*time.Hour)
	f.account = third
	f.putChanged(op, released, 24*time.Hour, waiting)

	require.Equal(t, idempotency.CompleterResult{Completed: f.config.Limit}, f.pass())
	require.ElementsMatch(t, []uuid.UUID{mine, mine, other, third}, order[:4])
	require.Equal(t, oldest.Key, first, "the longest idle")
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
			for attempt := 1; attempt <= maxAttempts; attempt++ {
				for range 3 {
					f.putAbandoned(good, given{Point: reserved}, 2*grace)
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
			require.Contains(t, f.log.String(), `level=ERROR msg="key needs review, no attempts are left" account_id=`+f.account.String()+
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

// No command changes a key of a newer version, nor does it use up the limit of a pass.
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
		tx.Queue("ALTER TABLE idempotency_keys RENAME completer_attempt TO renamed")
		return nil
	})
	wire := &idempotencytest.Wire{}
	f := newCompleterFixture(newFixture(t, wire.Configure), good, last)
	f.putAbandoned(good, given{Point: reserved}, 5*grace)
	f.putAbandoned(last, given{Point: reserved}, 4*grace)
	for range 5 {
		f.putAbandoned(good, given{Point: reserved}, 3*grace)
	}
	result, err := f.completer().RunOnce(t.Context())
	require.ErrorContains(t, err, "claim abandoned key: ")
	require.ErrorContains(t, err, "completer_attempt")
	require.Equal(t, idempotency.CompleterResult{Completed: 2}, result)
	require.Equal(t, 3, wire.Count("SET completer_attempt = completer_attempt +"))
	require.Equal(t, 2, f.countKeys("recovery_point = 'finished'"))
	f.requireIdle()

	wire.Reset()
	_, err = f.completer().RunOnce(t.Context())
	require.ErrorContains(t, err, "list abandoned keys: ")
	require.Equal(t, 1, wire.RoundTrips())
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
}
