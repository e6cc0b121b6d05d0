package idempotency_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/postgres"
)

func failingToPay() *threeSteps {
	return &threeSteps{pay: func(context.Context, *idempotency.Run) error { return errNoAnswer }}
}

func TestNewCompleter_refusals(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	find := only(oneStep())
	complete := idempotency.CompleterConfig{Grace: grace, MaxAttempts: 1, Limit: 1, Concurrency: 1}
	_, err := idempotency.NewCompleter(b.engine, find, complete)
	require.NoError(t, err)

	_, err = idempotency.NewCompleter(nil, find, complete)
	require.ErrorContains(t, err, "needs an engine")
	_, err = idempotency.NewCompleter(b.engine, nil, complete)
	require.ErrorContains(t, err, "needs an engine and its operations")
	for name, test := range map[string]struct {
		change func(*idempotency.CompleterConfig)
		want   string
	}{
		"no grace":                 {func(c *idempotency.CompleterConfig) { c.Grace = 0 }, "the grace of 0s must be more than the lease of 1m0s (R9)"},
		"a grace of a lease":       {func(c *idempotency.CompleterConfig) { c.Grace = lockTimeout }, "the grace of 1m0s must be more"},
		"no attempts":              {func(c *idempotency.CompleterConfig) { c.MaxAttempts = 0 }, "must be positive"},
		"no keys":                  {func(c *idempotency.CompleterConfig) { c.Limit = 0 }, "must be positive"},
		"less than no keys":        {func(c *idempotency.CompleterConfig) { c.Limit = -1 }, "must be positive"},
		"nobody to do the work":    {func(c *idempotency.CompleterConfig) { c.Concurrency = 0 }, "must be positive"},
		"nothing but an operation": {func(c *idempotency.CompleterConfig) { *c = idempotency.CompleterConfig{} }, "(R9)"},
	} {
		t.Run(name, func(t *testing.T) {
			config := complete
			test.change(&config)
			_, err := idempotency.NewCompleter(b.engine, find, config)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// What nobody works on any more is completed, wherever it was left; everything
// else stays as it is, byte for byte.
func TestCompleter_whatItTakes(t *testing.T) {
	t.Parallel()
	const old = 2 * grace
	tests := []struct {
		name  string
		state idempotencytest.State
		ago   time.Duration // since the last run
		set   string
		calls int64 // 0: it is left alone
	}{
		{name: "left at started", ago: old, calls: 2},
		{name: "left at the first call", state: idempotencytest.State{Point: reserved}, ago: old, calls: 2},
		{name: "left at the second call", state: idempotencytest.State{Point: paid}, ago: old, calls: 1},
		{name: "left a moment longer than the grace ago", state: idempotencytest.State{Point: paid}, ago: grace + time.Second, calls: 1},
		{name: "left for a year", state: idempotencytest.State{Point: paid}, ago: 365 * 24 * time.Hour, calls: 1},
		{name: "its run died in the first call", state: idempotencytest.State{Point: reserved, Leased: true, LeaseAge: old}, ago: old, calls: 2},
		{name: "its run died in the second call", state: idempotencytest.State{Point: paid, Leased: true, LeaseAge: old}, ago: old, calls: 1},
		{name: "its lease has just ended", state: idempotencytest.State{Point: paid, Leased: true, LeaseAge: lockTimeout + time.Second}, ago: old, calls: 1},

		{name: "left a moment ago", state: idempotencytest.State{Point: paid}},
		{name: "younger than the grace", state: idempotencytest.State{Point: paid}, ago: grace - 30*time.Second},
		{name: "its lease is over, the grace is not", state: idempotencytest.State{Point: paid, Leased: true, LeaseAge: 2 * lockTimeout}, ago: 2 * lockTimeout},
		{name: "leased", state: idempotencytest.State{Point: paid, Leased: true}},
		{name: "leased by a run that takes long", state: idempotencytest.State{Point: paid, Leased: true, LeaseAge: lockTimeout - 30*time.Second}, ago: old},
		{name: "needs review", state: idempotencytest.State{Point: paid}, ago: old, set: "needs_review_at = now()"},
		{name: "finished", state: idempotencytest.State{Point: idempotency.Finished}, set: "last_run_at = now() - interval '1 day'"},
	}
	b := newBench(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			op := &threeSteps{}
			n := newNight(b, op)
			req := b.request()
			b.put(req, op, test.state)
			if test.ago > 0 {
				b.age(req, test.ago)
			}
			if test.set != "" {
				b.set(req, test.set)
			}
			before := b.row(req)
			pass := n.pass()
			require.Equal(t, test.calls, op.calls.Load())
			if test.calls == 0 {
				require.Zero(t, pass)
				require.Equal(t, before, b.row(req))
				require.Empty(t, n.log.String())
				return
			}
			require.Equal(t, idempotency.Pass{Completed: 1}, pass)
			require.Equal(t, keyState{Point: "finished", Attempt: 2}, b.state(req))
			require.Equal(t, upkeep{Attempts: 1}, b.upkeep(req))
			require.Equal(t, 1, n.log.count("level=INFO msg=\"abandoned key completed\""))
			require.Equal(t, 1, strings.Count(n.log.String(), "\n"))

			again, err := b.do(req, op)
			require.NoError(t, err)
			require.True(t, again.Replayed, "the client gets the answer when it comes back")
			require.Zero(t, n.pass())
		})
	}
	b.requireIdle()
}

func TestCompleter_oldestFirst(t *testing.T) {
	t.Parallel()
	var order []idempotency.Key
	op := &threeSteps{pay: func(_ context.Context, run *idempotency.Run) error {
		order = append(order, run.Key)
		return nil
	}}
	n := newNight(newBench(t), op)
	var want []idempotency.Key
	for _, ago := range []time.Duration{20, 60, 40, 10, 50, 30} {
		want = append(want, n.abandon(op, idempotencytest.State{Point: paid}, ago*time.Minute).Key)
	}
	n.config.Limit = 4
	require.Equal(t, idempotency.Pass{Completed: 4}, n.pass())
	require.Equal(t, []idempotency.Key{want[1], want[4], want[2], want[5]}, order)
	require.Equal(t, idempotency.Pass{Completed: 2}, n.pass(), "those that the limit left over")
	require.Equal(t, []idempotency.Key{want[0], want[3]}, order[4:])
}

// A key that fails every time starves nobody, and after its last attempt it is a
// person's; not before (R16).
func TestCompleter_poison(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		pay       func(context.Context, *idempotency.Run) error
		lastError string
	}{
		"a call that never has an outcome": {
			func(context.Context, *idempotency.Run) error { return errNoAnswer }, errNoAnswer.Error(),
		},
		"a call that panics": {
			func(_ context.Context, run *idempotency.Run) error { panic("on " + run.KeyID.String()) }, "the run panicked",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			poison, good := &threeSteps{pay: test.pay}, operation{name: "good", steps: (&threeSteps{}).Steps}
			n := newNight(newBench(t), poison, good)
			bad := n.abandon(poison, idempotencytest.State{Point: paid}, 48*time.Hour) // before all others
			for attempt := 1; attempt <= maxAttempts; attempt++ {
				for range 3 {
					n.abandon(good, idempotencytest.State{Point: reserved}, 2*grace)
				}
				want := idempotency.Pass{Completed: 3, Failed: 1}
				if attempt == maxAttempts {
					want = idempotency.Pass{Completed: 3, NeedsReview: 1}
				}
				require.Equal(t, want, n.pass())
				require.Equal(t, upkeep{Attempts: attempt, NeedsReview: attempt == maxAttempts}, n.upkeep(bad))
				require.Equal(t, keyState{Point: string(paid), Attempt: 1 + attempt, LastError: &test.lastError}, n.state(bad),
					"the recovery point stays")
				require.Equal(t, min(attempt, maxAttempts-1), n.log.count("level=WARN"))
				require.Equal(t, attempt/maxAttempts, n.log.count("level=ERROR"))
				n.age(bad, 48*time.Hour)
			}
			require.Contains(t, n.log.String(), `level=ERROR msg="abandoned key given up: it needs review" account_id=`+n.account.String()+
				" key_id="+idempotency.KeyID(n.account, bad.Key).String())
			require.NotContains(t, n.log.String(), string(bad.Key), "an idempotency key is the client's secret")

			require.Zero(t, n.pass(), "and it is left alone")
			require.EqualValues(t, maxAttempts, poison.calls.Load())
			n.requireIdle()
		})
	}
}

// The process died in the last attempt, so that nobody has given the key up.
func TestCompleter_diedInItsLastAttempt(t *testing.T) {
	t.Parallel()
	op := &threeSteps{}
	n := newNight(newBench(t), op)
	req := n.abandon(op, idempotencytest.State{Point: paid}, 2*grace)
	n.set(req, "completer_attempt = $3, last_run_at = now() - interval '1 day'", maxAttempts)
	require.Equal(t, idempotency.Pass{NeedsReview: 1}, n.pass())
	require.Zero(t, op.calls.Load(), "what killed a process is not run again")
	require.True(t, n.upkeep(req).NeedsReview)
	require.Equal(t, 1, n.log.count("level=ERROR"))
}

// A key that cannot be marked as given up is not forgotten.
func TestCompleter_givenUpButLocked(t *testing.T) {
	t.Parallel()
	var unlock func()
	op := &threeSteps{}
	n := newNight(newBench(t, sessionSetting("lock_timeout", "50")), op)
	n.config.MaxAttempts = 1
	req := n.abandon(op, idempotencytest.State{Point: paid}, 2*grace)
	op.pay = func(context.Context, *idempotency.Run) error {
		unlock = n.other("SELECT FROM idempotency_keys FOR UPDATE")
		return errNoAnswer
	}
	require.Equal(t, idempotency.Pass{NeedsReview: 1}, n.pass())
	unlock()
	require.Equal(t, upkeep{Attempts: 1}, n.upkeep(req))
	require.Equal(t, 2, n.log.count("level=ERROR"))

	n.age(req, 2*grace)
	idempotencytest.AgeLease(t, n.pool, n.account, idempotency.KeyID(n.account, req.Key), 2*lockTimeout) // nor could that be given back
	require.Equal(t, idempotency.Pass{NeedsReview: 1}, n.pass())
	require.Equal(t, upkeep{Attempts: 2, NeedsReview: true}, n.upkeep(req))
	require.EqualValues(t, 1, op.calls.Load())
}

func TestCompleter_nothingToDo(t *testing.T) {
	t.Parallel()
	meter, statements := idempotencytest.NewMeter(), &statements{}
	op := &threeSteps{}
	n := newNight(newBench(t, meter.Configure, statements.configure), op)
	n.fill(10_000, time.Hour)
	for range 20 {
		n.abandon(op, idempotencytest.State{Point: paid}, grace/2)
		n.set(n.abandon(op, idempotencytest.State{Point: paid}, 2*grace), "needs_review_at = now()")
	}
	n.analyze()
	require.Zero(t, n.pass()) // the connection learns the statement
	meter.Reset()
	statements.forget()
	require.Zero(t, n.pass())
	require.Equal(t, 1, meter.RoundTrips())
	require.Zero(t, meter.Commits())
	plan := statements.plan(n.bench)
	require.Contains(t, plan, "Index Scan using idempotency_keys_unfinished_idx")
	require.NotContains(t, plan, "Seq Scan")
}

// What a newer version wrote is left to it (R18). It counts as failed, so that
// somebody hears of it when that version never comes.
func TestCompleter_newerVersion(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, set := range map[string]string{
		"unknown recovery point":      "recovery_point = 'charge_captured'",
		"unknown operation":           "operation = 'three_steps_2'",
		"unknown fingerprint version": `params_hash = '\x02' || substr(params_hash, 2)`,
	} {
		t.Run(name, func(t *testing.T) {
			op := &threeSteps{}
			n := newNight(b, op)
			req := n.abandon(op, idempotencytest.State{Point: paid}, 2*grace)
			n.set(req, set)
			before := n.state(req)
			require.Equal(t, idempotency.Pass{Failed: 1}, n.pass())
			require.Equal(t, before, n.state(req))
			require.Zero(t, op.calls.Load())
			n.age(req, 48*time.Hour)
			n.pass()
			n.age(req, 48*time.Hour)
			require.Equal(t, idempotency.Pass{NeedsReview: 1}, n.pass())
			require.Equal(t, before, n.state(req))
		})
	}
}

// A pass whose database goes away says so, and its counts are right.
func TestCompleter_cannotLook(t *testing.T) {
	t.Parallel()
	good := operation{name: "three_steps", steps: (&threeSteps{}).Steps}
	last := operation{name: "last", steps: func(run *idempotency.Run) idempotency.Steps {
		steps := (&threeSteps{}).Steps(run)
		steps[paid] = idempotency.Step{Record: func(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
			tx.Queue("ALTER TABLE idempotency_keys RENAME completer_attempt TO gone")
			return idempotency.Finish(idempotency.Response{Status: 200}), nil
		}}
		return steps
	}}
	n := newNight(newBench(t), good, last)
	n.abandon(good, idempotencytest.State{Point: reserved}, 5*grace)
	n.abandon(last, idempotencytest.State{Point: reserved}, 4*grace)
	for range 5 {
		n.abandon(good, idempotencytest.State{Point: reserved}, 3*grace)
	}
	pass, err := n.completer().RunOnce(t.Context())
	require.ErrorContains(t, err, "look for abandoned keys: ")
	require.ErrorContains(t, err, "completer_attempt")
	require.Equal(t, idempotency.Pass{Completed: pass.Completed}, pass)
	require.Contains(t, []int{2, 3}, pass.Completed)
	require.Equal(t, pass.Completed, n.keys("recovery_point = 'finished'"))
	n.requireIdle()

	n.pool.Close()
	pass, err = n.completer().RunOnce(t.Context())
	require.ErrorIs(t, err, postgres.ErrUnavailable)
	require.Zero(t, pass)
}

// Whoever finishes a key that was given up, its wish for review ends.
func TestCompleter_reviewEndsWithTheKey(t *testing.T) {
	t.Parallel()
	op := failingToPay()
	n := newNight(newBench(t), op)
	n.config.MaxAttempts = 1
	req := n.abandon(op, idempotencytest.State{Point: paid}, 2*grace)
	require.Equal(t, idempotency.Pass{NeedsReview: 1}, n.pass())

	_, err := n.do(req, op)
	require.ErrorIs(t, err, errNoAnswer)
	require.True(t, n.upkeep(req).NeedsReview, "a client's retry that fails ends nothing")
	op.pay = nil
	_, err = n.do(req, op)
	require.NoError(t, err)
	require.False(t, n.upkeep(req).NeedsReview)
}

func TestReopen(t *testing.T) {
	t.Parallel()
	op := failingToPay()
	n := newNight(newBench(t), op)
	reopen := func(req idempotency.Request) {
		require.NoError(t, n.engine.Reopen(t.Context(), req.AccountID, idempotency.KeyID(req.AccountID, req.Key)))
	}
	req := n.abandon(op, idempotencytest.State{Point: paid}, 2*grace)
	other := n.abandon(op, idempotencytest.State{Point: paid}, 2*grace)
	for range maxAttempts {
		n.pass()
		n.age(req, 48*time.Hour)
		n.age(other, 48*time.Hour)
	}
	require.Equal(t, upkeep{Attempts: maxAttempts, NeedsReview: true}, n.upkeep(req))
	reopen(req)
	require.Zero(t, n.upkeep(req))
	require.Equal(t, upkeep{Attempts: maxAttempts, NeedsReview: true}, n.upkeep(other))
	require.Equal(t, idempotency.Pass{Failed: 1}, n.pass(), "the completer has it again, with all attempts")

	finished := n.request()
	_, err := n.do(finished, oneStep())
	require.NoError(t, err)
	before := n.row(finished)
	reopen(finished)
	require.Equal(t, before, n.row(finished))
	reopen(n.request()) // which nobody has sent
}
