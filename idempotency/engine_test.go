package idempotency_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/migrations/dbtest"
)

func TestNew_missingDependency(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t)
	complete := idempotency.Config{LockTimeout: time.Minute, Clock: time.Now, Logger: slog.New(slog.DiscardHandler)}
	_, err := idempotency.New(pool, complete)
	require.NoError(t, err)

	_, err = idempotency.New(nil, complete)
	require.ErrorContains(t, err, "no pool")
	_, err = idempotency.New(dbtest.New(t), complete)
	require.ErrorContains(t, err, "postgres.Configure")
	for want, remove := range map[string]func(*idempotency.Config){
		"LockTimeout must be positive": func(c *idempotency.Config) { c.LockTimeout = 0 },
		"no clock":                     func(c *idempotency.Config) { c.Clock = nil },
		"no logger":                    func(c *idempotency.Config) { c.Logger = nil },
		"Waiters must not be negative": func(c *idempotency.Config) { c.Waiters = -1 },
	} {
		config := complete
		remove(&config)
		_, err = idempotency.New(pool, config)
		require.ErrorContains(t, err, want)
	}
}

func TestDo_newKey(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	req, op := b.request(), &threeSteps{}
	result, err := b.do(req, op)
	require.NoError(t, err)
	require.Equal(t, 201, result.Response.Status)
	require.False(t, result.Replayed)
	require.Equal(t, idempotency.KeyID(b.account, req.Key), result.KeyID)
	require.Equal(t, 1, result.Attempt)
	require.Equal(t, idempotency.Started, result.From)
	require.Equal(t, idempotency.Finished, result.To)
	require.Equal(t, onceEach, b.effects(req))
	require.Equal(t, keyState{Point: "finished", Attempt: 1}, b.state(req))
	b.requireIdle()
}

// The arms of R2, in every state that a key can be in.
func TestDo_arms(t *testing.T) {
	t.Parallel()
	const old = 2 * lockTimeout
	otherBody := func(req *idempotency.Request) { req.Params = []byte(`{"amount":1300}`) }
	otherPath := func(req *idempotency.Request) { req.Path = "/v1/others" }
	otherMethod := func(req *idempotency.Request) { req.Method = "PUT" }
	invalid := func(req *idempotency.Request) { req.Validate = func() error { return errors.New("amount too small") } }

	tests := []struct {
		name   string
		state  idempotencytest.State
		change func(*idempotency.Request)
		err    error // nil: an answer
		calls  int64
	}{
		{name: "finished", state: idempotencytest.State{Point: idempotency.Finished}},
		{name: "finished, invalid by now (R19)", state: idempotencytest.State{Point: idempotency.Finished}, change: invalid},
		{name: "finished, other body", state: idempotencytest.State{Point: idempotency.Finished}, change: otherBody, err: idempotency.ErrKeyReused},
		{name: "finished, other path", state: idempotencytest.State{Point: idempotency.Finished}, change: otherPath, err: idempotency.ErrKeyReused},
		{name: "finished, other method", state: idempotencytest.State{Point: idempotency.Finished}, change: otherMethod, err: idempotency.ErrKeyReused},
		{name: "leased", state: idempotencytest.State{Point: paid, Leased: true}, err: idempotency.ErrInProgress},
		{name: "leased at started", state: idempotencytest.State{Leased: true}, err: idempotency.ErrInProgress},
		{name: "lease almost over", state: idempotencytest.State{Point: paid, Leased: true, LeaseAge: lockTimeout - 30*time.Second}, err: idempotency.ErrInProgress},
		{name: "leased, other body", state: idempotencytest.State{Point: paid, Leased: true}, change: otherBody, err: idempotency.ErrKeyReused},
		{name: "leased, invalid by now", state: idempotencytest.State{Point: paid, Leased: true}, change: invalid, err: idempotency.ErrInProgress},
		{name: "lease over", state: idempotencytest.State{Point: paid, Leased: true, LeaseAge: old}, calls: 1},
		{name: "lease over, other body", state: idempotencytest.State{Point: paid, Leased: true, LeaseAge: old}, change: otherBody, err: idempotency.ErrKeyReused},
		{name: "lease over, invalid by now", state: idempotencytest.State{Point: paid, Leased: true, LeaseAge: old}, change: invalid, calls: 1},
		{name: "given back at started", state: idempotencytest.State{}, calls: 2},
		{name: "given back at the first call", state: idempotencytest.State{Point: reserved}, calls: 2},
		{name: "given back at the second call", state: idempotencytest.State{Point: paid}, calls: 1},
		{name: "given back, other body", state: idempotencytest.State{Point: paid}, change: otherBody, err: idempotency.ErrKeyReused},
	}
	b := newBench(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			req, op := b.request(), &threeSteps{}
			b.put(req, op, test.state)
			before := b.row(req)
			if test.change != nil {
				test.change(&req)
			}
			result, err := b.do(req, op)
			require.Equal(t, test.calls, op.calls.Load())
			if test.err != nil {
				require.ErrorIs(t, err, test.err)
				require.Zero(t, result.Response)
				require.Equal(t, before, b.row(req))
				return
			}
			require.NoError(t, err)
			require.Equal(t, idempotency.Finished, result.To)
			require.Equal(t, test.state.Point == idempotency.Finished, result.Replayed)
			if !result.Replayed {
				require.Equal(t, 2, result.Attempt)
				require.Equal(t, 201, result.Response.Status)
			}
		})
	}
	b.requireIdle()
}

func TestDo_invalidNewKey(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	req := b.request()
	tooSmall := errors.New("amount too small")
	req.Validate = func() error { return tooSmall }
	result, err := b.do(req, oneStep())
	require.ErrorIs(t, err, tooSmall)
	require.Equal(t, idempotency.KeyID(b.account, req.Key), result.KeyID)
	require.Empty(t, b.row(req))
}

func TestDo_accountsAreSeparate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	mine := b.request()
	theirs := mine
	theirs.AccountID = idempotencytest.Account(t, b.pool)
	first, err := b.do(mine, oneStep())
	require.NoError(t, err)
	second, err := b.do(theirs, oneStep())
	require.NoError(t, err)
	require.False(t, second.Replayed)
	require.NotEqual(t, first.KeyID, second.KeyID)
	require.NotEqual(t, first.Response.Body, second.Response.Body)
}

func TestResume(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	t.Run("abandoned", func(t *testing.T) {
		req, op := b.request(), &threeSteps{}
		b.put(req, op, idempotencytest.State{Point: paid, Leased: true, LeaseAge: 2 * lockTimeout})
		result, err := b.resume(req, op)
		require.NoError(t, err)
		require.Equal(t, 201, result.Response.Status)
		require.Equal(t, paid, result.From)
		require.Equal(t, 2, result.Attempt)
	})
	t.Run("finished", func(t *testing.T) {
		req := b.request()
		first, err := b.do(req, oneStep())
		require.NoError(t, err)
		result, err := b.resume(req, oneStep())
		require.NoError(t, err)
		require.True(t, result.Replayed)
		require.Equal(t, first.Response, result.Response)
	})
	t.Run("in progress", func(t *testing.T) {
		req, op := b.request(), &threeSteps{}
		b.put(req, op, idempotencytest.State{Point: paid, Leased: true})
		_, err := b.resume(req, op)
		require.ErrorIs(t, err, idempotency.ErrInProgress)
		require.Zero(t, op.calls.Load())
	})
	t.Run("unknown key", func(t *testing.T) {
		_, err := b.engine.Resume(t.Context(), b.account, uuid.New(), only(oneStep()))
		require.ErrorIs(t, err, idempotency.ErrNotFound)
	})
	t.Run("another account's key", func(t *testing.T) {
		req := b.request()
		first, err := b.do(req, oneStep())
		require.NoError(t, err)
		_, err = b.engine.Resume(t.Context(), uuid.New(), first.KeyID, only(oneStep()))
		require.ErrorIs(t, err, idempotency.ErrNotFound)
	})
}

// A resumed run uses what the first request said (R4), and knows that it is not
// the first one.
func TestResume_storedRequest(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	req := b.request()
	var runs []*idempotency.Run
	op := &threeSteps{}
	op.reserve = func(_ context.Context, run *idempotency.Run) error {
		runs = append(runs, run)
		if len(runs) == 1 {
			return errNoAnswer
		}
		return nil
	}
	_, err := b.do(req, op)
	require.ErrorIs(t, err, errNoAnswer)
	_, err = b.resume(req, op)
	require.NoError(t, err)

	first, second := runs[0], runs[1]
	require.False(t, first.Resumed)
	require.True(t, second.Resumed)
	require.Equal(t, req.Params, second.Params)
	require.Equal(t, req.Key, second.Key)
	require.Equal(t, first.KeyID, second.KeyID)
	require.Equal(t, first.CreatedAt, second.CreatedAt)
	require.Equal(t, []int{1, 2}, []int{first.Attempt, second.Attempt})
	require.False(t, second.Now().Before(first.CreatedAt))
}

// What a newer version wrote is left alone, byte for byte (R18).
func TestDo_newerVersion(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		update string
	}{
		{"unknown recovery point", "UPDATE idempotency_keys SET recovery_point = 'charge_captured'"},
		{"unknown operation", "UPDATE idempotency_keys SET operation = 'three_steps_2'"},
		{"unknown fingerprint version", `UPDATE idempotency_keys SET params_hash = '\x02' || substr(params_hash, 2)`},
	}
	b := newBench(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			req, op := b.request(), &threeSteps{}
			b.put(req, op, idempotencytest.State{Point: paid})
			_, err := b.pool.Exec(t.Context(), test.update+" WHERE idempotency_key = $1", string(req.Key))
			require.NoError(t, err)
			before := b.row(req)
			_, err = b.do(req, op)
			require.ErrorIs(t, err, idempotency.ErrNewerVersion)
			_, err = b.resume(req, op)
			require.ErrorIs(t, err, idempotency.ErrNewerVersion)
			require.Equal(t, before, b.row(req))
			require.Zero(t, op.calls.Load())
		})
	}
}

// A response comes back as it was given (R14).
func TestDo_responseBytes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		response idempotency.Response
	}{
		{"empty object", idempotency.Response{Status: 200, Body: []byte(`{}`)}},
		{"no body, no headers", idempotency.Response{Status: 204}},
		{"order and spaces of the members", idempotency.Response{Status: 200, Body: []byte("{\"b\": 1,\n\"a\": 1.0, \"b\": 2}")}},
		{"NUL", idempotency.Response{Status: 200, Body: []byte("\"\\u0000\" \x00")}},
		{"not UTF-8", idempotency.Response{Status: 402, Body: []byte{0xff, 0xfe, 0x80}}},
		{"64 KiB", idempotency.Response{Status: 200, Body: bytes.Repeat([]byte("0123456789abcdef"), 4096)}},
		{"headers", idempotency.Response{Status: 499, Headers: map[string]string{
			"Content-Type": "application/problem+json",
			"Location":     "/v1/things/\"quoted\" \\ <&>",
			"Empty":        "",
		}}},
	}
	b := newBench(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			req := b.request()
			op := finishing(test.response)
			first, err := b.do(req, op)
			require.NoError(t, err)
			require.Equal(t, test.response.Status, first.Response.Status)
			require.Equal(t, string(test.response.Body), string(first.Response.Body))

			again, err := b.do(req, op)
			require.NoError(t, err)
			require.True(t, again.Replayed)
			require.Equal(t, first.Response, again.Response)
		})
	}
}

// What cannot be stored, or not be replayed as it was, is refused before it is
// answered.
func TestDo_responseRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, response := range map[string]idempotency.Response{
		"no status":               {},
		"informational":           {Status: 199},
		"server error (R11)":      {Status: 500},
		"header with a NUL":       {Status: 200, Headers: map[string]string{"Location": "/\x00"}},
		"header with a line":      {Status: 200, Headers: map[string]string{"Location": "/\r\nX: y"}},
		"header that is no UTF-8": {Status: 200, Headers: map[string]string{"Location": "/\xff"}},
		"header name":             {Status: 200, Headers: map[string]string{"Ort\u00e9": "/"}},
	} {
		t.Run(name, func(t *testing.T) {
			req := b.request()
			_, err := b.do(req, finishing(response))
			require.Error(t, err)
			require.Empty(t, b.row(req))
		})
	}
	b.requireIdle()
}

func finishing(response idempotency.Response) operation {
	return operation{name: "finishing", steps: func(*idempotency.Run) idempotency.Steps {
		return idempotency.Steps{
			idempotency.Started: {Record: func(context.Context, *idempotency.Tx) (idempotency.Outcome, error) {
				return idempotency.Finish(response), nil
			}},
		}
	}}
}
