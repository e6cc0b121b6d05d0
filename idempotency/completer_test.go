package idempotency_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
)

const (
	grace       = 5 * time.Minute
	maxAttempts = 3
)

// night is a bench on which a completer works, with what it logs.
type night struct {
	*bench
	log        *logBuffer
	engine     *idempotency.Engine // the bench's but for the log
	operations map[string]idempotency.Operation
	config     idempotency.CompleterConfig
}

func newNight(b *bench, operations ...idempotency.Operation) *night {
	b.t.Helper()
	n := &night{
		bench:      b,
		log:        &logBuffer{},
		operations: map[string]idempotency.Operation{},
		config:     idempotency.CompleterConfig{Grace: grace, MaxAttempts: maxAttempts, Limit: 100, Concurrency: 1},
	}
	for _, op := range operations {
		n.operations[op.Name()] = op
	}
	var err error
	n.engine, err = idempotency.New(b.pool, idempotency.Config{
		LockTimeout: lockTimeout,
		Clock:       time.Now,
		Logger:      slog.New(slog.NewTextHandler(n.log, nil)),
	})
	require.NoError(b.t, err)
	return n
}

func (n *night) completer() *idempotency.Completer {
	n.t.Helper()
	c, err := idempotency.NewCompleter(n.engine, n.find, n.config)
	require.NoError(n.t, err)
	return c
}

func (n *night) find(name string) (idempotency.Operation, bool) {
	op, known := n.operations[name]
	return op, known
}

// pass makes one pass.
func (n *night) pass() idempotency.Pass {
	n.t.Helper()
	pass, err := n.completer().RunOnce(n.t.Context())
	require.NoError(n.t, err)
	return pass
}

// abandon leaves a new key in a state, its last run so long ago.
func (b *bench) abandon(op idempotency.Operation, state idempotencytest.State, ago time.Duration) idempotency.Request {
	b.t.Helper()
	req := b.request()
	b.put(req, op, state)
	b.age(req, ago)
	return req
}

// age makes the last run of a key so much older.
func (b *bench) age(req idempotency.Request, ago time.Duration) {
	b.t.Helper()
	idempotencytest.AgeRun(b.t, b.pool, req.AccountID, idempotency.KeyID(req.AccountID, req.Key), ago)
}

// set changes columns of a key.
func (b *bench) set(req idempotency.Request, columns string, arguments ...any) {
	b.t.Helper()
	tag, err := b.pool.Exec(b.t.Context(), "UPDATE idempotency_keys SET "+columns+" WHERE account_id = $1 AND id = $2",
		append([]any{req.AccountID, idempotency.KeyID(req.AccountID, req.Key)}, arguments...)...)
	require.NoError(b.t, err)
	require.EqualValues(b.t, 1, tag.RowsAffected())
}

// upkeep is the part of a key's row that is the completer's.
type upkeep struct {
	Attempts    int
	NeedsReview bool
}

func (b *bench) upkeep(req idempotency.Request) upkeep {
	b.t.Helper()
	var u upkeep
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), `
SELECT completer_attempt,
       needs_review_at IS NOT NULL
  FROM idempotency_keys
 WHERE account_id = $1
   AND id = $2`, req.AccountID, idempotency.KeyID(req.AccountID, req.Key)).Scan(&u.Attempts, &u.NeedsReview))
	return u
}

// failingToPay is an operation whose second call never has an outcome.
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

// Each try that failed doubles the pause, up to six hours.
func TestCompleter_growingPause(t *testing.T) {
	t.Parallel()
	tests := []struct {
		grace    time.Duration
		attempts int // behind it
		pause    time.Duration
	}{
		{grace, 0, grace},
		{grace, 1, 2 * grace},
		{grace, 2, 4 * grace},
		{grace, 3, 8 * grace},
		{grace, 6, 64 * grace},
		{grace, 7, 6 * time.Hour},
		{grace, 20, 6 * time.Hour},
		{grace, math.MaxInt32 - 1, 6 * time.Hour},
		{lockTimeout + time.Second, 8, 256 * (lockTimeout + time.Second)},
		{4 * time.Hour, 0, 4 * time.Hour},
		{4 * time.Hour, 1, 6 * time.Hour},
		{8 * time.Hour, 0, 8 * time.Hour},
		{8 * time.Hour, 3, 8 * time.Hour},
		{100 * 24 * time.Hour, 50, 100 * 24 * time.Hour},
	}
	b := newBench(t)
	for _, test := range tests {
		op := &threeSteps{}
		n := newNight(b, op)
		n.config.Grace, n.config.MaxAttempts = test.grace, math.MaxInt32
		req := n.abandon(op, idempotencytest.State{Point: paid}, test.pause-30*time.Second)
		n.set(req, "completer_attempt = $3", test.attempts)
		require.Zero(t, n.pass(), "%v: too early", test)
		n.age(req, 31*time.Second)
		require.Equal(t, idempotency.Pass{Completed: 1}, n.pass(), "%v: due", test)
	}
}

// The pause begins with the try.
func TestCompleter_pauseAfterATry(t *testing.T) {
	t.Parallel()
	op := failingToPay()
	n := newNight(newBench(t), op)
	req := n.abandon(op, idempotencytest.State{Point: paid}, 48*time.Hour)
	require.Equal(t, idempotency.Pass{Failed: 1}, n.pass())
	n.age(req, 2*grace-30*time.Second)
	require.Zero(t, n.pass())
	n.age(req, 31*time.Second)
	require.Equal(t, idempotency.Pass{Failed: 1}, n.pass())
	n.age(req, 4*grace-30*time.Second)
	require.Zero(t, n.pass())
}

// A client that comes back often does not use up what the completer has.
func TestCompleter_attemptsAreItsOwn(t *testing.T) {
	t.Parallel()
	op := failingToPay()
	n := newNight(newBench(t), op)
	req := n.abandon(op, idempotencytest.State{Point: paid}, 0)
	for range 5 * maxAttempts {
		_, err := n.do(req, op)
		require.ErrorIs(t, err, errNoAnswer)
	}
	require.Zero(t, n.upkeep(req))
	n.age(req, 2*grace)
	require.Equal(t, idempotency.Pass{Failed: 1}, n.pass())
	require.Equal(t, upkeep{Attempts: 1}, n.upkeep(req))
}

// Five completers at once, and every client at the same time: each step of each
// key runs once.
func TestCompleter_manyAtOnce(t *testing.T) {
	t.Parallel()
	const keys, completers = 40, 5
	op := &threeSteps{}
	b := newBench(t, connections(8))
	var requests []idempotency.Request
	var calls int64
	for i := range keys {
		state := []idempotencytest.State{{}, {Point: reserved}, {Point: paid}, {Point: paid, Leased: true, LeaseAge: 2 * lockTimeout}}[i%4]
		requests = append(requests, b.abandon(op, state, 2*grace))
		calls += []int64{2, 2, 1, 1}[i%4]
	}
	n := newNight(b, op)
	n.config.Concurrency = 3

	var all sync.WaitGroup
	passes, answers := make([]idempotency.Pass, completers), make([]idempotency.Result, keys)
	for i := range completers {
		all.Go(func() {
			var err error
			if passes[i], err = n.completer().RunOnce(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	for i, req := range requests {
		all.Go(func() {
			var err error
			if answers[i], err = b.do(req, op); err != nil && !errors.Is(err, idempotency.ErrInProgress) {
				t.Error(err)
			}
		})
	}
	all.Wait()

	completed := 0
	for _, pass := range passes {
		require.Zero(t, pass.Failed+pass.NeedsReview)
		completed += pass.Completed
	}
	for i, answer := range answers {
		if answer.Response.Status != 0 && !answer.Replayed {
			completed++
		}
		last, err := b.do(requests[i], op)
		require.NoError(t, err)
		require.True(t, last.Replayed)
		if answer.Response.Status != 0 {
			require.Equal(t, string(last.Response.Body), string(answer.Response.Body))
		}
		for name, times := range b.effects(requests[i]) {
			require.Equal(t, 1, times, name)
		}
	}
	require.Equal(t, keys, completed, "each key was finished by one of them")
	require.Equal(t, calls, op.calls.Load())
	require.Zero(t, newNight(b, op).pass())
	b.requireIdle()
}

// A key that somebody finished after it was taken is not the completer's work.
func TestCompleter_somebodyWasFaster(t *testing.T) {
	t.Parallel()
	for name, faster := range map[string]func(*night, idempotency.Request){
		"and is not done yet": func(n *night, req idempotency.Request) { n.set(req, "locked_at = now()") },
		"and is done": func(n *night, req idempotency.Request) {
			_, err := n.do(req, n.operations["three_steps"])
			require.NoError(n.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			op := &threeSteps{}
			n := newNight(newBench(t, connections(2)), op)
			req := n.abandon(op, idempotencytest.State{Point: paid}, 2*grace)
			first := true
			completer, err := idempotency.NewCompleter(n.engine, func(string) (idempotency.Operation, bool) {
				if first {
					first = false
					faster(n, req)
				}
				return op, true
			}, n.config)
			require.NoError(t, err)
			pass, err := completer.RunOnce(t.Context())
			require.NoError(t, err)
			require.Equal(t, idempotency.Pass{Busy: 1}, pass)
			require.LessOrEqual(t, op.calls.Load(), int64(1))
		})
	}
}

// A row that another session has locked is passed over, not waited for.
func TestCompleter_rowLocked(t *testing.T) {
	t.Parallel()
	op := &threeSteps{}
	n := newNight(newBench(t), op)
	locked := n.abandon(op, idempotencytest.State{Point: paid}, 3*grace)
	free := n.abandon(op, idempotencytest.State{Point: paid}, 2*grace)
	before := n.row(locked)
	unlock := n.other("SELECT FROM idempotency_keys WHERE idempotency_key = $1 FOR NO KEY UPDATE", string(locked.Key))
	require.Equal(t, idempotency.Pass{Completed: 1}, n.pass())
	require.Equal(t, before, n.row(locked))
	require.Equal(t, "finished", n.state(free).Point)
	unlock()
	require.Equal(t, idempotency.Pass{Completed: 1}, n.pass())
}

// A pass with nothing to do is one query, of an index that holds nothing of what
// is finished.
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
	require.Contains(t, plan, "Index Scan using idempotency_keys_unfinished")
	require.NotContains(t, plan, "Seq Scan")
}

// A pass that is told to stop finishes what it has in hand.
func TestCompleter_stopped(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	op := &threeSteps{}
	op.reserve = func(context.Context, *idempotency.Run) error {
		stop()
		return nil
	}
	n := newNight(newBench(t), op)
	for range 10 {
		n.abandon(op, idempotencytest.State{Point: reserved}, 2*grace)
	}
	pass, err := n.completer().RunOnce(ctx)
	require.NoError(t, err)
	// One was being worked on, and perhaps another one was taken meanwhile.
	require.Contains(t, []int{1, 2}, pass.Completed)
	require.Equal(t, idempotency.Pass{Completed: pass.Completed}, pass)
	require.Equal(t, pass.Completed, n.keys("recovery_point = 'finished'"))
	require.Equal(t, pass.Completed, n.keys("completer_attempt = 1"))

	pass, err = n.completer().RunOnce(ctx)
	require.NoError(t, err)
	require.Zero(t, pass)
	require.Zero(t, n.log.count("level=ERROR"))
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
	require.ErrorIs(t, err, idempotency.ErrUnavailable)
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

// keys counts the keys that fulfil a condition.
func (b *bench) keys(condition string) int {
	b.t.Helper()
	var n int
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), "SELECT count(*) FROM idempotency_keys WHERE "+condition).Scan(&n))
	return n
}

// fill inserts finished keys, the i-th of them i seconds after the first.
func (b *bench) fill(n int, ago time.Duration) {
	b.t.Helper()
	_, err := b.pool.Exec(b.t.Context(), `
INSERT INTO idempotency_keys (
    id, account_id, idempotency_key, operation, request_method, request_path, request_params, params_hash,
    recovery_point, lease_token, attempt, last_run_at, created_at, finished_at, response_code, response_headers, response_body
)
SELECT gen_random_uuid(), $1, 'one-of-many-' || gen_random_uuid(), 'things', 'POST', '/v1/things', '{}', decode(repeat('01', 33), 'hex'),
       'finished', gen_random_uuid(), 1, at, at, at, 200, '{}', ''
  FROM generate_series(1, $2) AS i,
       LATERAL (SELECT now() - $3::interval + i * interval '1 second') AS t (at)`, b.account, n, ago)
	require.NoError(b.t, err)
}

// analyze lets the planner know what is there, as it does after a while.
func (b *bench) analyze() {
	b.t.Helper()
	_, err := b.pool.Exec(b.t.Context(), "ANALYZE idempotency_keys, accounts")
	require.NoError(b.t, err)
}

// logBuffer is a log that several goroutines may write to.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// count returns how many lines contain text.
func (b *logBuffer) count(text string) int {
	return len(slices.DeleteFunc(strings.Split(b.String(), "\n"), func(line string) bool { return !strings.Contains(line, text) }))
}
