package idempotency_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
)

func TestTx_readsAndWrites(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req := f.request()
	_, err := f.do(req, beforeRecord(&threeSteps{}, reserved, func(ctx context.Context, tx *idempotency.Tx, run *idempotency.Run) error {
		effect(tx, run, "queued")
		var n int
		err := tx.QueryRow(ctx, insertEffect+" RETURNING 1", []any{run.AccountID, string(run.Key), "executed"}, &n)
		require.NoError(t, err)

		err = tx.QueryRow(ctx, "SELECT count(*) FROM effects WHERE idempotency_key = $1", []any{string(run.Key)}, &n)
		require.NoError(t, err)
		require.Equal(t, 2, n, "created and executed; the queued statement has not been sent")

		err = tx.QueryRow(ctx, "SELECT 1 WHERE false", nil, &n)
		require.ErrorIs(t, err, pgx.ErrNoRows)
		return nil
	}))
	require.NoError(t, err)
	require.Equal(t, map[string]int{"created": 1, "reserved": 1, "paid": 1, "executed": 1, "queued": 1}, f.effects(req))
	f.requireIdle()
}

func TestTx_callbacks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, point := range []idempotency.RecoveryPoint{idempotency.Started, reserved} {
		req := f.request()
		var returned uuid.UUID
		op := beforeRecord(&threeSteps{}, point, func(_ context.Context, tx *idempotency.Tx, run *idempotency.Run) error {
			tx.Queue(insertEffect+" RETURNING account_id", run.AccountID, string(run.Key), "returned").
				QueryRow(func(row pgx.Row) error { return errors.Join(row.Scan(&returned), errNoResponse) })
			return nil
		})
		_, err := f.do(req, op)
		require.ErrorIs(t, err, postgres.ErrUnavailable)
		require.Equal(t, f.account, returned)
		f.mustDo(req, op)
		require.Equal(t, map[string]int{"created": 1, "reserved": 1, "paid": 1, "returned": 1}, f.effects(req))
	}
	f.requireIdle()
}

func TestTx_statementFails(t *testing.T) {
	t.Parallel()
	const violation = "INSERT INTO accounts (id, name) VALUES (gen_random_uuid(), '')"
	type record = func(context.Context, *idempotency.Tx, *idempotency.Run) error
	queued := func(statement string, arguments ...any) record {
		return func(_ context.Context, tx *idempotency.Tx, run *idempotency.Run) error {
			tx.Queue(statement, arguments...)
			effect(tx, run, "after the failure")
			return nil
		}
	}
	tests := []struct {
		name   string
		record record
		want   string
	}{
		{"queued", queued(violation), "(SQLSTATE 23514)"},
		{"queued, argument of a wrong type", queued("SELECT $1::uuid", struct{}{}), "unable to encode struct {}{}"},
		{"queued, argument of a wrong value", queued("SELECT $1::uuid", "no uuid"), "(SQLSTATE 22P02)"},
		{"queued, detected by COMMIT", func(_ context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
			tx.Queue("CREATE TEMPORARY TABLE twice (x int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
			tx.Queue("DO $$ BEGIN INSERT INTO twice VALUES (1), (1); END $$")
			return nil
		}, "(SQLSTATE 23505)"},
		{"queried", func(ctx context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
			return tx.QueryRow(ctx, violation+" RETURNING id", nil, new(uuid.UUID))
		}, "(SQLSTATE 23514)"},
		{"queried, error ignored", func(ctx context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
			_ = tx.QueryRow(ctx, "TABLE unknown", nil)
			_ = tx.QueryRow(ctx, "SELECT 1", nil)
			return nil
		}, "(SQLSTATE 42P01)"},
		{"scanned into a wrong type", func(ctx context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
			return tx.QueryRow(ctx, "SELECT 'text'", nil, new(int))
		}, "cannot scan"},
	}
	f := newFixture(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			req := f.request()
			_, err := f.do(req, beforeRecord(&threeSteps{}, reserved, func(ctx context.Context, tx *idempotency.Tx, run *idempotency.Run) error {
				effect(tx, run, "rolled back")
				return test.record(ctx, tx, run)
			}))
			require.ErrorContains(t, err, test.want)
			require.NotErrorIs(t, err, postgres.ErrUnavailable)
			require.NotErrorIs(t, err, idempotency.ErrInProgress)
			require.Equal(t, map[string]int{"created": 1}, f.effects(req))
			require.Equal(t, keyState{Point: string(reserved), Runs: 1, LastError: new(err.Error())}, f.state(req))
			f.requireIdle()

			f.mustDo(req, &threeSteps{})
			require.Equal(t, onceEach, f.effects(req))
		})
	}
}
