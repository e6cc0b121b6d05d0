package idempotency_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
)

// secondStep is an operation of two steps whose second one has the given record.
// If that fails, the key is at reserved.
func secondStep(record func(ctx context.Context, tx *idempotency.Tx, run *idempotency.Run) (idempotency.Outcome, error)) operation {
	return operation{name: "second_step", steps: func(run *idempotency.Run) idempotency.Steps {
		return idempotency.Steps{
			Start: recordEffect(run, "created", idempotency.Advance(reserved)),
			From: map[idempotency.RecoveryPoint]idempotency.Step{
				reserved: noCall(func(ctx context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
					return record(ctx, tx, run)
				}),
			},
		}
	}}
}

func TestTx_readsAndWrites(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req := f.request()
	_, err := f.do(req, secondStep(func(ctx context.Context, tx *idempotency.Tx, run *idempotency.Run) (idempotency.Outcome, error) {
		effect(tx, run, "queued")
		tag, err := tx.Exec(ctx, insertEffect, uuid.New(), run.AccountID, "executed", string(run.Key))
		require.NoError(t, err)
		require.EqualValues(t, 1, tag.RowsAffected())

		var n int
		err = tx.QueryRow(ctx, "SELECT count(*) FROM audit_records WHERE resource_id = $1", string(run.Key)).Scan(&n)
		require.NoError(t, err)
		require.Equal(t, 2, n, "created and executed; the queued statement has not been sent")

		err = tx.QueryRow(ctx, "SELECT 1 WHERE false").Scan(&n)
		require.ErrorIs(t, err, pgx.ErrNoRows)
		return idempotency.Finish(uniqueResponse(run)), nil
	}))
	require.NoError(t, err)
	require.Equal(t, map[string]int{"created": 1, "executed": 1, "queued": 1}, f.effects(req))
	f.requireIdle()
}

// An error of a queued statement's callback cannot stop the COMMIT that was sent
// with it, in the step that claims the key and in later ones.
func TestTx_callbacks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, callbackErr := range map[string]error{"no error": nil, "error": errNoResponse} {
		for _, point := range []idempotency.RecoveryPoint{idempotency.Started, reserved} {
			t.Run(name+" at "+string(point), func(t *testing.T) {
				req := f.request()
				var returned uuid.UUID
				op := wrapRecord(&threeSteps{}, point, func(run *idempotency.Run, record idempotency.Record) idempotency.Record {
					return func(ctx context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
						tx.Queue(insertEffect+" RETURNING account_id", uuid.New(), run.AccountID, "returned", string(run.Key)).
							QueryRow(func(row pgx.Row) error { return errors.Join(row.Scan(&returned), callbackErr) })
						return record(ctx, tx)
					}
				})
				first, err := f.do(req, op)
				require.NoError(t, err)
				require.Equal(t, f.account, returned)
				require.Equal(t, map[string]int{"created": 1, "reserved": 1, "paid": 1, "returned": 1}, f.effects(req))
				again, err := f.do(req, op)
				require.NoError(t, err)
				require.Equal(t, first.Response, again.Response)
			})
		}
	}
	f.requireIdle()
}

// The error of a statement is returned unchanged, and the transaction is rolled
// back.
func TestTx_statementFails(t *testing.T) {
	t.Parallel()
	const violation = "INSERT INTO accounts (id, name) VALUES ($1, '')"
	state := func(code string) func(*testing.T, error) {
		return func(t *testing.T, err error) {
			var pg *pgconn.PgError
			require.ErrorAs(t, err, &pg)
			require.Equal(t, code, pg.Code)
		}
	}
	mistake := func(text string) func(*testing.T, error) {
		return func(t *testing.T, err error) { require.ErrorContains(t, err, text) }
	}
	tests := []struct {
		name   string
		record func(ctx context.Context, tx *idempotency.Tx, run *idempotency.Run) error
		want   func(*testing.T, error)
	}{
		{"queued", func(_ context.Context, tx *idempotency.Tx, run *idempotency.Run) error {
			tx.Queue(violation, run.KeyID)
			return nil
		}, state("23514")},
		{"queued, before others", func(_ context.Context, tx *idempotency.Tx, run *idempotency.Run) error {
			tx.Queue(violation, run.KeyID)
			effect(tx, run, "after the violation")
			return nil
		}, state("23514")},
		{"queued, unknown table", func(_ context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
			tx.Queue("TABLE unknown")
			return nil
		}, state("42P01")},
		{"queued, the error that a fence raises", func(_ context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
			tx.Queue("SELECT 1 / 0")
			return nil
		}, state("22012")},
		{"queued, argument of a wrong type", func(_ context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
			tx.Queue("SELECT $1::uuid", struct{}{})
			return nil
		}, mistake("unable to encode struct {}{}")},
		{"queued, argument of a wrong value", func(_ context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
			tx.Queue("SELECT $1::uuid", "no uuid")
			return nil
		}, state("22P02")},
		{"queued, detected by COMMIT", func(_ context.Context, tx *idempotency.Tx, run *idempotency.Run) error {
			tx.Queue("CREATE TEMPORARY TABLE twice (x uuid UNIQUE DEFERRABLE INITIALLY DEFERRED)")
			tx.Queue("DO $$ BEGIN INSERT INTO twice VALUES ('" + run.KeyID.String() + "'), ('" + run.KeyID.String() + "'); END $$")
			return nil
		}, state("23505")},
		{"executed", func(ctx context.Context, tx *idempotency.Tx, run *idempotency.Run) error {
			_, err := tx.Exec(ctx, violation, run.KeyID)
			return err
		}, state("23514")},
		{"executed, error ignored", func(ctx context.Context, tx *idempotency.Tx, run *idempotency.Run) error {
			_, _ = tx.Exec(ctx, violation, run.KeyID)
			_, _ = tx.Exec(ctx, "SELECT 1")
			return nil
		}, state("23514")},
		{"queried, error ignored", func(ctx context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
			_ = tx.QueryRow(ctx, "TABLE unknown").Scan()
			_ = tx.QueryRow(ctx, "SELECT 1").Scan()
			return nil
		}, state("42P01")},
		{"queried, not scanned", func(ctx context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
			_ = tx.QueryRow(ctx, "SELECT 1")
			return nil
		}, mistake("conn busy")},
		{"scanned into a wrong type", func(ctx context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
			var n int
			return tx.QueryRow(ctx, "SELECT 'text'").Scan(&n)
		}, mistake("cannot scan")},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			req := f.request()
			_, err := f.do(req, secondStep(func(ctx context.Context, tx *idempotency.Tx, run *idempotency.Run) (idempotency.Outcome, error) {
				effect(tx, run, "rolled back")
				return idempotency.Finish(uniqueResponse(run)), test.record(ctx, tx, run)
			}))
			require.Error(t, err)
			require.NotErrorIs(t, err, postgres.ErrUnavailable)
			require.NotErrorIs(t, err, idempotency.ErrInProgress)
			test.want(t, err)
			require.Equal(t, map[string]int{"created": 1}, f.effects(req))
			state := f.state(req)
			require.Equal(t, string(reserved), state.Point)
			require.False(t, state.Leased)
			f.requireIdle()

			// The connection, or its successor, is usable.
			_, err = f.do(req, secondStep(func(ctx context.Context, tx *idempotency.Tx, run *idempotency.Run) (idempotency.Outcome, error) {
				return finishWith(run, "done")(ctx, tx)
			}))
			require.NoError(t, err)
			require.Equal(t, map[string]int{"created": 1, "done": 1}, f.effects(req))
		})
	}
}
