package idempotency_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/migrations/dbtest"
)

// Without the timeouts of a configured pool, a stalled run would block its key.
func TestNew_poolNotConfigured(t *testing.T) {
	t.Parallel()
	_, err := idempotency.New(dbtest.New(t), idempotency.Config{LeaseDuration: time.Minute, Clock: time.Now, Logger: slog.Default()})
	require.ErrorContains(t, err, "postgres.Configure")
}

// The order of the answers, in every state of a key (R2).
func TestDo_knownKey(t *testing.T) {
	t.Parallel()
	otherBody := func(req *idempotency.Request) { req.Params = []byte(`{"amount":1300}`) }
	otherPath := func(req *idempotency.Request) { req.Path = "/v1/others" }
	otherMethod := func(req *idempotency.Request) { req.Method = "PUT" }

	tests := []struct {
		name    string
		state   given
		change  func(*idempotency.Request)
		invalid bool // by today's rules
		err     error
		calls   int64
	}{
		{name: "finished", state: finished},
		{name: "finished, now invalid", state: finished, invalid: true},
		{name: "finished, other body", state: finished, change: otherBody, err: idempotency.ErrFinishedKeyReused},
		{name: "finished, other path", state: finished, change: otherPath, err: idempotency.ErrFinishedKeyReused},
		{name: "finished, other method", state: finished, change: otherMethod, err: idempotency.ErrFinishedKeyReused},
		{name: "leased", state: leased, err: idempotency.ErrInProgress},
		{name: "lease about to expire", state: given{Point: paid, Leased: true, LeaseAge: leaseDuration - 30*time.Second}, err: idempotency.ErrInProgress},
		{name: "leased, other body", state: leased, change: otherBody, err: idempotency.ErrKeyReused},
		{name: "lease expired", state: expired, calls: 1},
		{name: "leased by a clock that is slightly ahead", state: given{Point: paid, Leased: true, LeaseAge: -leaseDuration / 2}, err: idempotency.ErrInProgress},
		{name: "leased by a clock that ran ahead", state: given{Point: paid, Leased: true, LeaseAge: -400 * 24 * time.Hour}, calls: 1},
		{name: "lease expired, other body", state: expired, change: otherBody, err: idempotency.ErrKeyReused},
		{name: "released at the first call", state: given{Point: reserved}, calls: 2},
		{name: "released at the second call", state: released, calls: 1},
	}
	f := newFixture(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			req, op := f.request(), &threeSteps{}
			f.put(req, op, test.state)
			before := f.row(req)
			if test.change != nil {
				test.change(&req)
			}
			claims := int64(0)
			req.OnClaim = func() {
				claims++
				require.Equal(t, 2, f.state(req).Runs, "the takeover is committed, and no connection is held")
			}
			var current idempotency.Operation = op
			if test.invalid {
				current = rejecting(op)
			}
			result, err := f.do(req, current)
			require.Equal(t, test.calls, op.calls.Load())
			require.Equal(t, min(1, test.calls), claims)
			if test.err != nil {
				require.ErrorIs(t, err, test.err)
				require.NotErrorIs(t, err, idempotency.ErrLeaseLost, "this request had no lease")
				require.Zero(t, result.Response)
				require.Equal(t, before, f.row(req))
				return
			}
			require.NoError(t, err)
			require.Equal(t, idempotency.Finished, result.To)
			require.Equal(t, test.state.Point == idempotency.Finished, result.Replayed)
			if !result.Replayed {
				require.Equal(t, 2, result.Runs)
				require.Equal(t, 201, result.Response.Status)
			}
		})
	}
	f.requireIdle()
}

// Such a row can only be inserted by hand. It must not occupy a processor until the end of the process.
func TestDo_rowWithAnotherID(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req, op := f.request(), &threeSteps{}
	f.put(req, op, finished)
	f.update(req, "id = gen_random_uuid()")
	_, err := f.do(req, op)
	require.ErrorContains(t, err, "conflicts with key "+idempotency.KeyID(req.AccountID, req.Key).String())
	require.Zero(t, op.calls.Load())
}

func TestDo_otherAccount(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	mine := f.request()
	theirs := mine
	theirs.AccountID = idempotencytest.Account(t, f.pool)
	first := f.mustDo(mine, oneStep())
	second := f.mustDo(theirs, oneStep())
	require.False(t, second.Replayed)
	require.NotEqual(t, first.KeyID, second.KeyID)
	require.NotEqual(t, first.Response.Body, second.Response.Body)
}

// A resumed run has the stored parameters.
func TestResume_storedRequest(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req := f.request()
	var runs []*idempotency.Run
	op := &threeSteps{reserve: func(_ context.Context, run *idempotency.Run) error {
		runs = append(runs, run)
		return errNoResponse
	}}
	_, err := f.do(req, op)
	require.ErrorIs(t, err, errNoResponse)
	_, err = f.resume(req, op)
	require.ErrorIs(t, err, errNoResponse)

	first, second := runs[0], runs[1]
	require.False(t, first.Resumed)
	require.True(t, second.Resumed)
	require.Equal(t, req.Params, second.Params)
	require.Equal(t, req.Key, second.Key)
	require.Equal(t, first.KeyID, second.KeyID)
	require.False(t, first.CreatedAt.IsZero())
	require.Equal(t, first.CreatedAt, second.CreatedAt)
	require.Equal(t, []int{1, 2}, []int{first.Runs, second.Runs})
	require.False(t, second.Now().Before(first.CreatedAt))
}

// A row of a newer version stays unchanged.
func TestDo_newerVersion(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, columns := range map[string]string{
		"unknown recovery point": "recovery_point = 'charge_captured'",
		"unknown operation":      "operation = 'three_steps_2'",
	} {
		t.Run(name, func(t *testing.T) {
			req, op := f.request(), &threeSteps{}
			f.put(req, op, released)
			f.update(req, columns)
			before := f.row(req)
			_, err := f.do(req, op)
			require.ErrorIs(t, err, idempotency.ErrNewerVersion)
			_, err = f.resume(req, op)
			require.ErrorIs(t, err, idempotency.ErrNewerVersion)
			require.Equal(t, before, f.row(req))
			require.Zero(t, op.calls.Load())
		})
	}
}

// resolvable is a Marker.
type resolvable struct{ *threeSteps }

func (resolvable) Mark(batch *pgx.Batch, key idempotency.StoredKey, operator string) {
	batch.Queue(insertEffect, key.AccountID, string(key.Key), "ended by "+operator)
}

// An operator's action is recorded only beside an unfinished key that this version knows, and that no run has moved.
func TestOperator(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, test := range map[string]struct {
		given        given
		before, then string // assignments, the second between the read and the write
		ends         bool   // the operation is resolvable
		resolve      bool
		recorded     bool
		want         error
	}{
		"retry":             {given: released, recorded: true},
		"resolve":           {given: released, ends: true, resolve: true, recorded: true},
		"not resolvable":    {given: released, resolve: true, want: idempotency.ErrNotResolvable},
		"held":              {given: given{Point: reserved, Leased: true}, recorded: true, want: idempotency.ErrInProgress},
		"finished":          {given: given{Response: idempotency.Response{Status: 200}}, want: idempotency.ErrNotFound},
		"unknown point":     {given: released, before: "recovery_point = 'captured'", want: idempotency.ErrNewerVersion},
		"unknown operation": {given: released, before: "operation = 'three_steps_2'", want: idempotency.ErrNewerVersion},
		"moved":             {given: released, then: "recovery_point = 'captured'", want: idempotency.ErrInProgress},
	} {
		t.Run(name, func(t *testing.T) {
			req, steps := f.request(), &threeSteps{}
			f.put(req, steps, test.given)
			if test.before != "" {
				f.update(req, test.before)
			}
			engine := f.registered(steps)
			if test.ends {
				engine = f.registered(resolvable{steps})
			}
			record := func(batch *pgx.Batch) {
				batch.Queue(insertEffect, req.AccountID, string(req.Key), "recorded")
				if test.then != "" {
					f.update(req, test.then)
				}
			}
			var err error
			if test.resolve {
				_, err = engine.Resolve(t.Context(), req.AccountID, keyID(req), "ada", record)
			} else {
				_, err = engine.Retry(t.Context(), req.AccountID, keyID(req), record)
			}
			require.ErrorIs(t, err, test.want)
			require.Equal(t, test.recorded, f.effects(req)["recorded"] == 1)
			require.Equal(t, test.ends, f.effects(req)["ended by ada"] == 1)
			require.Equal(t, test.want == nil, steps.calls.Load() > 0)
		})
	}
	_, err := f.engine.Retry(t.Context(), f.account, keyID(f.request()), nil)
	require.ErrorIs(t, err, idempotency.ErrNotFound)

	req, ends := f.request(), resolvable{&threeSteps{}}
	f.put(req, ends, released)
	before := f.row(req)
	cannotRecord := func(batch *pgx.Batch) { batch.Queue("TABLE unknown") }
	_, err = f.registered(ends).Resolve(t.Context(), f.account, keyID(req), "ada", cannotRecord)
	require.ErrorContains(t, err, "nothing was changed: ")
	_, err = f.registered(ends).Retry(t.Context(), idempotencytest.Account(t, f.pool), keyID(req), nil)
	require.ErrorIs(t, err, idempotency.ErrNotFound, "another account's operator")
	require.Equal(t, before, f.row(req))
	require.Empty(t, f.effects(req))
	require.Panics(t, func() { f.registered(&threeSteps{}).Register(&threeSteps{}) }, "the name is registered")
	f.requireIdle()
}

func TestDo_responseBytes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		response idempotency.Response
	}{
		{"no body, no headers", idempotency.Response{Status: 204}},
		{"order and spaces of the members", idempotency.Response{Status: 200, Body: []byte("{\"b\": 1,\n\"a\": 1.0, \"b\": 2}")}},
		{"NUL", idempotency.Response{Status: 200, Body: []byte("\"\\u0000\" \x00")}},
		{"not UTF-8", idempotency.Response{Status: 402, Body: []byte{0xff, 0xfe, 0x80}}},
		{"headers", idempotency.Response{Status: 499, Headers: map[string]string{
			"Content-Type": "application/problem+json",
			"Location":     "/v1/things/\"quoted\" \\ <&>",
			"Empty":        "",
		}}},
	}
	f := newFixture(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			req, op := f.request(), finishing(test.response)
			first := f.mustDo(req, op)
			require.Equal(t, test.response.Status, first.Response.Status)
			require.Equal(t, string(test.response.Body), string(first.Response.Body))

			again := f.mustDo(req, op)
			require.True(t, again.Replayed)
			require.Equal(t, first.Response, again.Response)
		})
	}
}

func finishing(response idempotency.Response) operation {
	return startOnly(func(context.Context, *idempotency.Tx, *idempotency.Run) (idempotency.Transition, error) {
		return idempotency.Finish(response), nil
	})
}
