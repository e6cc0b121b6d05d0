package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
)

// Behind a connection pooler, statements may be sent in another way.
func TestQueryExecModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement,
		pgx.QueryExecModeCacheDescribe,
		pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, func(config *pgxpool.Config) { config.ConnConfig.DefaultQueryExecMode = mode })
			req, op := f.request(), &threeSteps{before: read}
			op.pay = func(context.Context) error { return errNoResponse }
			_, err := f.do(req, op)
			require.ErrorIs(t, err, errNoResponse)
			op.pay = nil
			first, err := f.engine.Resume(t.Context(), req.AccountID, idempotency.KeyID(req.AccountID, req.Key), []idempotency.Operation{op})
			require.NoError(t, err)
			again := f.mustDo(req, op)
			require.Equal(t, first.Response, again.Response)
			require.Equal(t, onceEach, f.effects(req))

			lost := f.request()
			_, err = f.do(lost, &threeSteps{reserve: func(context.Context) error {
				f.update(lost, "lease_token = md5(lease_token::text)::uuid")
				return nil
			}})
			require.ErrorIs(t, err, idempotency.ErrLeaseLost)
			require.Equal(t, map[string]int{"created": 1}, f.effects(lost))

			if mode == pgx.QueryExecModeExec || mode == pgx.QueryExecModeSimpleProtocol {
				return // they cannot encode the arrays of the other statements, and the program rejects them
			}
			f.backgroundCommands(op)
		})
	}
}

func (f *fixture) backgroundCommands(op *threeSteps) {
	ctx, operations := f.t.Context(), []idempotency.Operation{op}
	req := f.request()
	id := idempotencytest.PutKey(f.t, f.pool, req, op.Name(), paid)
	f.update(req, "last_run_at = now() - interval '1 hour'")
	stuck, err := f.engine.Stuck(ctx, 5*time.Minute, 10)
	require.NoError(f.t, err)
	require.NotEmpty(f.t, stuck)
	found, err := f.engine.Find(ctx, uuid.Nil, string(req.Key))
	require.NoError(f.t, err)
	require.Len(f.t, found, 1)
	completer := idempotency.NewCompleter(f.engine, operations, idempotency.CompleterConfig{
		Grace: 5 * time.Minute, MaxAttempts: 3, ActionTimeout: 24 * time.Hour, Limit: 10, Concurrency: 1,
	})
	pass, err := completer.RunOnce(ctx)
	require.NoError(f.t, err)
	require.Equal(f.t, idempotency.CompleterResult{Completed: 1}, pass)
	require.NoError(f.t, f.engine.Requeue(ctx, req.AccountID, id, operations))
	status, err := f.engine.Key(ctx, req.AccountID, id)
	require.NoError(f.t, err)
	require.True(f.t, f.engine.AwaitChange(ctx, status), "the key is finished")
	_, err = idempotency.ReadStats(ctx, f.pool)
	require.NoError(f.t, err)
	require.Equal(f.t, 2, idempotencytest.Reap(f.t, f.pool))
}
