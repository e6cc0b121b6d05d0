package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/lab/labtest"
)

// insertKeys inserts keys that ran last an hour ago.
func (f *fixture) insertKeys(n int, columns, values string) {
	f.t.Helper()
	_, err := f.pool.Exec(f.t.Context(), `
INSERT INTO idempotency_keys (
    id, account_id, idempotency_key, operation, request_method, request_path, request_params, fingerprint,
    lease_token, runs, updated_at, created_at, recovery_point, `+columns+`
)
SELECT gen_random_uuid(), $1, 'one-of-many-' || gen_random_uuid(), 'things', 'POST', '/v1/things', '{}', decode(repeat('01', 33), 'hex'),
       gen_random_uuid(), 1, at, at, `+values+`
  FROM generate_series(1, $2) AS i,
       LATERAL (SELECT now() - interval '1 hour' + i * interval '1 millisecond') AS t (at)`, f.account, n)
	require.NoError(f.t, err)
}

// All generic plans use an index, and PostgreSQL switches to them, except in the lists of
// the background commands, which are rare.
func TestPlans_useIndexes(t *testing.T) {
	t.Parallel()
	const executions = 10
	f, op, ctx := newFixture(t), &threeSteps{before: read}, t.Context()
	f.insertKeys(10_000, "finished_at, response_code, response_headers, response_body", "'finished', at, 200, '{}', ''")
	f.insertKeys(1_000, "action_required_at", "'paid', now()")
	_, err := f.pool.Exec(ctx, "ANALYZE idempotency_keys, accounts")
	require.NoError(t, err)
	f.engine.Register(op)
	completer := idempotency.NewCompleter(f.engine, idempotency.CompleterConfig{
		Grace: 5 * time.Minute, ActionTimeout: 23 * time.Hour, Batch: 40, Concurrency: 1,
	})
	for range executions {
		req := f.request()
		f.mustDo(req, op) // claim, fence, advance, finish
		require.True(t, f.mustDo(req, op).Replayed)
		_, _, err = f.engine.Lookup(ctx, req.AccountID, f.request().Key) // find, expired
		require.ErrorIs(t, err, idempotency.ErrNotFound)
		abandoned := f.request()
		idempotencytest.PutKey(t, f.pool, abandoned, op.Name(), paid)
		f.update(abandoned, "updated_at = now() - interval '1 hour'")
		pass, err := completer.RunOnce(ctx) // list, claim, takeover
		require.NoError(t, err)
		require.Equal(t, idempotency.CompleterResult{Completed: 1}, pass)
		_, err = f.do(f.request(), &threeSteps{reserve: func(context.Context) error { return errNoResponse }}) // release
		require.ErrorIs(t, err, errNoResponse)
	}
	require.True(t, f.engine.AwaitChange(ctx, f.finishedKey(op)))
	_, err = f.engine.Unfinished(ctx)
	require.NoError(t, err)
	_, err = f.engine.Find(ctx, []uuid.UUID{f.account}, "an-unused-client-key")
	require.NoError(t, err)
	_, err = idempotency.ReadStats(ctx, f.pool)
	require.NoError(t, err)
	_, err = f.engine.CountReapable(ctx, time.Hour)
	require.NoError(t, err)
	deleted, err := f.engine.Reap(ctx, time.Hour, 100) // list, delete
	require.NoError(t, err)
	require.Positive(t, deleted)

	plans := labtest.Plans(t, f.pool)
	var all string
	for _, plan := range plans {
		all += plan.Text
		require.NotContains(t, plan.Text, "Seq Scan on idempotency_keys", plan.Statement)
		if plan.Custom+plan.Generic >= executions && !strings.Contains(plan.Statement, "LIMIT") {
			require.NotZero(t, plan.Generic, plan.Statement)
		}
	}
	require.Greater(t, len(plans), 20)
	for _, index := range []string{"pkey", "unfinished_idx", "finished_idx"} {
		require.Contains(t, all, "Index Scan using idempotency_keys_"+index)
	}
}

func (f *fixture) finishedKey(op idempotency.Operation) idempotency.StoredKey {
	f.t.Helper()
	req := f.request()
	f.mustDo(req, op)
	status, _, err := f.engine.Lookup(f.t.Context(), f.account, req.Key)
	require.NoError(f.t, err)
	return status
}
