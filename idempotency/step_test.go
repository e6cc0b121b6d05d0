package idempotency_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
)

// The recovery point stays, and the lease is released.
func TestStep_callFails(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		err    error
		stored string
	}{
		{"plain", errNoResponse, errNoResponse.Error()},
		{"NUL and invalid UTF-8", errors.New("a\x00b\xff"), "a?b?"},
		{"long", errors.New(strings.Repeat("é", 600)), strings.Repeat("é", 500)},
		{"empty", errors.New(""), ""},
	}
	f := newFixture(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			req, op := f.request(), &threeSteps{}
			op.pay = func(context.Context, *idempotency.Run) error { return test.err }
			result, err := f.do(req, op)
			require.Equal(t, test.err, err, "the step's error is returned unchanged")
			require.Zero(t, result.Response)
			require.Equal(t, idempotency.Started, result.From)
			require.Equal(t, paid, result.To)
			require.Equal(t, keyState{Point: string(paid), Runs: 1, LastError: &test.stored}, f.state(req))

			op.pay = nil
			result = f.mustDo(req, op)
			require.Equal(t, paid, result.From)
			require.Equal(t, onceEach, f.effects(req))
			require.EqualValues(t, 3, op.calls.Load())
			require.Equal(t, keyState{Point: "finished", Runs: 2}, f.state(req))
		})
	}
	f.requireIdle()
}

type panicking struct{}

func (panicking) Scan(any) error { panic("bug") }

func TestStep_panics(t *testing.T) {
	t.Parallel()
	inCall := &threeSteps{reserve: func(context.Context, *idempotency.Run) error { panic("bug") }}
	inRecord := func(point idempotency.RecoveryPoint, queries bool) operation {
		return beforeRecord(&threeSteps{}, point, func(ctx context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
			if queries {
				_ = tx.QueryRow(ctx, "SELECT 1", nil, panicking{})
			}
			panic("bug")
		})
	}
	for _, test := range []struct {
		name string
		op   idempotency.Operation
		left string
	}{
		{"in a call", inCall, "reserved"},
		{"in a record", inRecord(reserved, false), "reserved"},
		{"in a record, during a query", inRecord(paid, true), "paid"},
		{"in the first record", inRecord(idempotency.Started, false), ""},
		{"in the first record, during a query", inRecord(idempotency.Started, true), ""},
		{"in Steps", operation{name: "three_steps", steps: func(*idempotency.Run) idempotency.Steps { panic("bug") }}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			req := f.request()
			require.PanicsWithValue(t, "bug", func() { _, _ = f.do(req, test.op) })
			f.requireIdle()
			if test.left == "" {
				require.Empty(t, f.row(req))
			} else {
				require.Equal(t, keyState{Point: test.left, Runs: 1, LastError: new("the run panicked")}, f.state(req))
			}
			f.mustDo(req, &threeSteps{})
			require.Equal(t, onceEach, f.effects(req))
		})
	}
}

// A closed client connection does not cancel the work.
func TestStep_clientGone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req, op := f.request(), &threeSteps{}
	ctx, closeConnection := context.WithCancel(t.Context())
	op.reserve = func(ctx context.Context, _ *idempotency.Run) error {
		closeConnection()
		return ctx.Err()
	}
	_, err := f.engine.Do(ctx, req, op)
	require.NoError(t, err)
	require.Equal(t, onceEach, f.effects(req))
}

// A run that another run's step resumes ends with that step, and releases its lease (R8).
func TestResume_deadline(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	op := &threeSteps{pay: func(ctx context.Context, _ *idempotency.Run) error {
		<-ctx.Done()
		return ctx.Err()
	}}
	req := f.request()
	f.put(req, op, released)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // it must not end before the step
	defer cancel()
	_, err := f.registered(op).Resume(ctx, req.AccountID, keyID(req))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.False(t, f.state(req).Leased)
	require.NotNil(t, f.state(req).LastError)
	f.mustDo(req, &threeSteps{})
}

// A call ends with the lease.
func TestStep_callOutlivesLease(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const short = 100 * time.Millisecond
	f.engine = newEngine(t, f.pool, func(c *idempotency.Config) { c.LeaseDuration = short })
	req, op := f.request(), &threeSteps{}
	op.pay = func(ctx context.Context, _ *idempotency.Run) error {
		deadline, ok := ctx.Deadline()
		require.True(t, ok)
		require.False(t, deadline.After(f.leasedAt(req).Add(short)), "the database runs on this machine, so the clocks agree")
		<-ctx.Done()
		return ctx.Err()
	}
	_, err := f.do(req, op)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, keyState{Point: string(paid), Runs: 1, LastError: new("context deadline exceeded")}, f.state(req))
}

func (f *fixture) leasedAt(req idempotency.Request) time.Time {
	f.t.Helper()
	var at time.Time
	require.NoError(f.t, f.pool.QueryRow(f.t.Context(), `
SELECT locked_at
  FROM idempotency_keys
 WHERE account_id = $1
   AND id = $2`, req.AccountID, keyID(req)).Scan(&at))
	return at
}

func TestStep_commitRenewsLease(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req, op := f.request(), &threeSteps{}
	var first time.Time
	op.reserve = func(context.Context, *idempotency.Run) error {
		f.ageLease(req, leaseDuration/2)
		first = f.leasedAt(req)
		return nil
	}
	op.pay = func(context.Context, *idempotency.Run) error {
		require.Greater(t, f.leasedAt(req).Sub(first), leaseDuration/2)
		return nil
	}
	f.mustDo(req, op)
}

// What a pause records stays, and the run ends, unless the commit has shown that there is more to do.
func TestStep_pauses(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	reason := errNoResponse
	op := operation{name: "pausing", steps: func(run *idempotency.Run) idempotency.Steps {
		return idempotency.Steps{
			Start: recordEffect(run, "created", idempotency.Advance(reserved)),
			At: map[idempotency.RecoveryPoint]idempotency.StepFunc{
				reserved: noCall(recordEffect(run, "tried", idempotency.Pause(paid, func() error { return reason }))),
				paid:     noCall(finishWith(run, "done")),
			},
		}
	}}
	req := f.request()
	_, err := f.do(req, op)
	require.Equal(t, errNoResponse, err)
	require.Equal(t, keyState{Point: string(paid), Runs: 1, LastError: new(err.Error())}, f.state(req))
	require.Equal(t, map[string]int{"created": 1, "tried": 1}, f.effects(req))
	f.mustDo(req, op)
	require.Equal(t, map[string]int{"created": 1, "tried": 1, "done": 1}, f.effects(req))

	req, reason = f.request(), nil
	f.mustDo(req, op)
	require.Equal(t, map[string]int{"created": 1, "tried": 1, "done": 1}, f.effects(req))
	f.requireIdle()
}

func TestStep_misuse(t *testing.T) {
	t.Parallel()
	next := func(o idempotency.Transition) idempotency.RecordFunc {
		return func(context.Context, *idempotency.Tx) (idempotency.Transition, error) { return o, nil }
	}
	from := func(step idempotency.StepFunc) idempotency.Steps {
		return idempotency.Steps{
			Start: next(idempotency.Advance(reserved)),
			At:    map[idempotency.RecoveryPoint]idempotency.StepFunc{reserved: step},
		}
	}
	f := newFixture(t)
	for name, test := range map[string]struct {
		steps idempotency.Steps
		want  string
		left  string
	}{
		"no first step":                    {idempotency.Steps{}, "no record", ""},
		"back to started":                  {idempotency.Steps{Start: next(idempotency.Advance(idempotency.Started))}, `advanced to "started"`, ""},
		"zero transition":                  {idempotency.Steps{Start: next(idempotency.Transition{})}, `advanced to ""`, ""},
		"finished without a response":      {idempotency.Steps{Start: next(idempotency.Advance(idempotency.Finished))}, "domain response_code", ""},
		"unknown point of a later step":    {from(noCall(next(idempotency.Advance("unknown")))), `advanced to "unknown", from which there is no step`, "reserved"},
		"a later step without a record":    {from(noCall(nil)), "no record", "reserved"},
		"a later step stores an error 503": {from(noCall(next(idempotency.Finish(idempotency.Response{Status: 503})))), "domain response_code", "reserved"},
	} {
		t.Run(name, func(t *testing.T) {
			req := f.request()
			_, err := f.do(req, operation{name: "misuse", steps: func(*idempotency.Run) idempotency.Steps { return test.steps }})
			require.ErrorContains(t, err, test.want)
			if test.left == "" {
				require.Empty(t, f.row(req))
				return
			}
			require.Equal(t, keyState{Point: test.left, Runs: 1, LastError: new(err.Error())}, f.state(req))
		})
	}
	f.requireIdle()
}
