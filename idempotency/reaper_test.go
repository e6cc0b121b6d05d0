package idempotency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
)

const (
	retention = 72 * time.Hour
	batch     = 100
)

func (f *fixture) reap() int {
	f.t.Helper()
	n, err := f.engine.Reap(f.t.Context(), retention, batch)
	require.NoError(f.t, err)
	return n
}

func (f *fixture) countExpired() int {
	f.t.Helper()
	n, err := f.engine.CountReapable(f.t.Context(), retention)
	require.NoError(f.t, err)
	return n
}

// Only finished keys past their retention are emptied.
func TestReaper_selection(t *testing.T) {
	t.Parallel()
	const ancient = "updated_at = now() - interval '9 years', created_at = now() - interval '9 years'"
	tests := []struct {
		name    string
		state   given
		update  string
		emptied bool
	}{
		{name: "finished a second past the retention", state: finished, update: "finished_at = now() - interval '72 hours 1 second'", emptied: true},

		{name: "just finished, created years ago", state: finished, update: ancient},
		{name: "finished within the retention", state: finished, update: "finished_at = now() - interval '71 hours 59 minutes'"},
		{name: "unfinished for years", state: released, update: ancient},
		{name: "at an unknown point for years", state: given{Point: "captured"}, update: ancient},
		{name: "leased for years", state: given{Point: paid, Leased: true, LeaseAge: 9 * 365 * 24 * time.Hour}, update: ancient},
	}
	f := newFixture(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			req := f.putChanged(&threeSteps{}, test.state, 0, test.update)
			before := f.row(req)
			if test.emptied {
				require.Equal(t, 1, f.countExpired())
				require.Equal(t, before, f.row(req), "counting empties nothing")
				require.Equal(t, 1, f.reap())
				after := f.row(req)
				require.NotContains(t, after, string(req.Key))
				require.Zero(t, f.countExpired())
				require.Zero(t, f.reap())
				require.Equal(t, after, f.row(req), "it is emptied once")
				return
			}
			require.Zero(t, f.countExpired())
			require.Zero(t, f.reap())
			require.Equal(t, before, f.row(req))
		})
	}
	f.requireIdle()
}

// One statement empties the keys of a batch, of all accounts.
func TestReaper_batches(t *testing.T) {
	t.Parallel()
	wire := &idempotencytest.Wire{}
	f := newFixture(t, wire.Configure)
	f.insertFinished(1, retention-time.Hour)
	f.insertFinished(5*batch+7, retention+time.Hour)
	for range 2 {
		f.account = idempotencytest.Account(t, f.pool)
		f.insertFinished(3, retention)
	}
	wire.Reset()
	require.Equal(t, 5*batch+7+2*3, f.reap())
	require.Equal(t, 6, wire.RoundTrips())
	require.Equal(t, 1, f.countKeys("expired_at IS NULL"))
}

func TestReaper_rowsLocked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.insertFinished(3*batch, retention+time.Hour)
	unlock := f.otherTransaction("SELECT FROM idempotency_keys ORDER BY finished_at LIMIT 150 FOR NO KEY UPDATE")
	require.Equal(t, 150, f.reap())
	unlock()
	_, err := f.pool.Exec(t.Context(), "UPDATE idempotency_keys SET finished_at = now() - $1::interval", retention+time.Hour)
	require.NoError(t, err)
	unlock = f.otherTransaction("SELECT FROM idempotency_keys FOR NO KEY UPDATE")
	require.Zero(t, f.reap(), "a batch of locked rows ends the pass")
	unlock()
	require.Equal(t, 150, f.reap())
	require.Zero(t, f.countKeys("expired_at IS NULL"))
}

// A reaped key never executes again, with any operation.
func TestDo_reapedKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req := f.request()
	f.mustDo(req, &threeSteps{})
	stored, _, err := f.engine.Lookup(t.Context(), req.AccountID, req.Key)
	require.NoError(t, err)
	f.update(req, "finished_at = finished_at - $3::interval", retention+time.Hour)
	require.Equal(t, 1, f.reap())
	emptied := f.row(req)

	readsFirst := beforeRecord(oneStep(), idempotency.Started, query)
	changed := req
	changed.Params = []byte(`{"amount":1}`)
	for name, test := range map[string]struct {
		req idempotency.Request
		op  idempotency.Operation
	}{
		"the same request":              {req, &threeSteps{}},
		"other parameters":              {changed, &threeSteps{}},
		"another operation":             {req, oneStep()},
		"an operation that reads first": {req, readsFirst},
		"parameters that are rejected":  {changed, rejecting(&threeSteps{})},
	} {
		result, err := f.do(test.req, test.op)
		var keyExpired *idempotency.KeyExpiredError
		require.ErrorAs(t, err, &keyExpired, name)
		require.Equal(t, stored.Operation, keyExpired.Key.Operation, name)
		require.Equal(t, stored.Key, keyExpired.Key.Key, name)
		require.Equal(t, stored.Path, keyExpired.Key.Path, name)
		require.True(t, stored.CreatedAt.Equal(keyExpired.Key.CreatedAt), name)
		require.Equal(t, idempotency.Result{KeyID: keyID(req), Runs: 1, From: idempotency.Finished, To: idempotency.Finished}, result, name)
	}
	_, errs := f.race(20, req, &threeSteps{})
	for _, err := range errs {
		require.ErrorAs(t, err, new(*idempotency.KeyExpiredError))
	}
	require.Equal(t, emptied, f.row(req))
	require.Equal(t, onceEach, f.effects(req))

	stranger := req
	stranger.AccountID = idempotencytest.Account(t, f.pool)
	_, err = f.do(stranger, &threeSteps{})
	require.NoError(t, err, "a key belongs to its account")
	f.requireIdle()
}

// A row with a derived id shows that the key was used.
func TestDo_rowDeletedByOperator(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req := f.request()
	op := operation{name: "derives", steps: func(run *idempotency.Run) idempotency.Steps {
		return idempotency.Steps{
			Start: func(_ context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
				tx.Queue("INSERT INTO accounts (id, name) VALUES ($1, 'derived')", idempotency.DeriveID("thing", run.AccountID, run.Key))
				return idempotency.Finish(idempotency.Response{Status: 201}), nil
			},
			Violated: func(context.Context, string) error { return run.Expired() },
		}
	}}
	f.mustDo(req, op)
	_, err := f.pool.Exec(t.Context(), "DELETE FROM idempotency_keys")
	require.NoError(t, err)
	var expired *idempotency.KeyExpiredError
	_, err = f.do(req, op)
	require.ErrorAs(t, err, &expired)
	require.Equal(t, op.Name(), expired.Key.Operation)
	require.Empty(t, f.row(req))
}
