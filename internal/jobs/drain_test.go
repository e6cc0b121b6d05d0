package jobs_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/jobs"
)

const kind = "example"

func newWorker(pool *pgxpool.Pool, do func(context.Context, jobs.Job) error) *jobs.Worker {
	return &jobs.Worker{
		Pool: pool, Logger: slog.New(slog.DiscardHandler), Kind: kind, Do: do,
		Timeout: time.Minute, Concurrency: 4, Detail: error.Error,
	}
}

func restage(t *testing.T, pool *pgxpool.Pool, account uuid.UUID, ids ...uuid.UUID) {
	t.Helper()
	batch := &pgx.Batch{}
	for _, id := range ids {
		jobs.RestageTx(batch, account, id, kind, struct{}{})
	}
	require.NoError(t, pool.SendBatch(t.Context(), batch).Close())
}

// Drain returns what has failed, and waits for the job that another worker runs.
func TestDrain(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t)
	account, held, failing, other := uuid.New(), uuid.New(), uuid.New(), uuid.New()
	restage(t, pool, account, held)
	reached, release := make(chan struct{}), make(chan struct{})
	var done atomic.Bool
	var another errgroup.Group
	another.Go(func() error {
		_, err := newWorker(pool, func(context.Context, jobs.Job) error {
			close(reached)
			<-release
			done.Store(true)
			return nil
		}).RunOnce(context.Background())
		return err
	})
	<-reached
	restage(t, pool, account, failing, other)
	time.AfterFunc(100*time.Millisecond, func() { close(release) })
	left, err := newWorker(pool, func(_ context.Context, j jobs.Job) error {
		if j.ID == failing {
			return errors.New("it fails")
		}
		return nil
	}).Drain(t.Context())
	require.NoError(t, err)
	require.True(t, done.Load())
	require.NoError(t, another.Wait())
	require.Len(t, left, 1)
	require.Equal(t, failing, left[0].ID)
	require.Equal(t, "it fails", left[0].LastError)

	left, err = newWorker(pool, func(_ context.Context, j jobs.Job) error {
		require.Equal(t, failing, j.ID)
		return nil
	}).Drain(t.Context())
	require.NoError(t, err)
	require.Empty(t, left, "the job that waited for its next attempt, after an outage")

	restage(t, pool, account, held)
	_, err = newWorker(pool, func(context.Context, jobs.Job) error { return jobs.ErrMisconfigured }).Drain(t.Context())
	require.ErrorIs(t, err, jobs.ErrMisconfigured)
}
