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

const (
	kind    = "example"
	makeDue = "UPDATE staged_jobs SET run_at = now()"
)

var ofTests = uuid.New() // an account

func newWorker(pool *pgxpool.Pool, do func(context.Context, jobs.Job) error) *jobs.Worker {
	return &jobs.Worker{
		Pool: pool, Logger: slog.New(slog.DiscardHandler), Kind: kind, Do: do,
		Timeout: time.Minute, Concurrency: 4, Detail: error.Error,
	}
}

func returns(err error) func(context.Context, jobs.Job) error {
	return func(context.Context, jobs.Job) error { return err }
}

func restage(t *testing.T, pool *pgxpool.Pool, ids ...uuid.UUID) {
	t.Helper()
	batch := &pgx.Batch{}
	for _, id := range ids {
		jobs.RestageTx(batch, ofTests, id, kind, struct{}{})
	}
	require.NoError(t, pool.SendBatch(t.Context(), batch).Close())
}

func exec(t *testing.T, pool *pgxpool.Pool, statement string, arguments ...any) {
	t.Helper()
	_, err := pool.Exec(t.Context(), statement, arguments...)
	require.NoError(t, err)
}

func requirePass(t *testing.T, worker *jobs.Worker, want jobs.Result) {
	t.Helper()
	got, err := worker.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, got)
}

type leftJob struct {
	Attempt   int
	LastError string
	Failed    bool
}

func requireLeft(t *testing.T, pool *pgxpool.Pool, want ...leftJob) {
	t.Helper()
	rows, err := pool.Query(t.Context(), "SELECT attempt, coalesce(last_error, ''), failed_at IS NOT NULL FROM staged_jobs")
	require.NoError(t, err)
	got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[leftJob])
	require.NoError(t, err)
	require.ElementsMatch(t, want, got)
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	total := time.Duration(0)
	for attempt := 1; attempt <= 300; attempt++ {
		delay := jobs.Backoff(attempt)
		middle := 15 * time.Minute
		if attempt <= 10 {
			middle = time.Second << (attempt - 1)
		}
		require.InEpsilon(t, middle, delay, 0.21, "attempt %d", attempt)
		total += delay
	}
	require.InDelta(t, 72, total.Hours(), 3, "about three days")
}

func TestRunOnce_changedCandidate(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"claimed by another worker": "UPDATE staged_jobs SET attempt = attempt + 1, run_at = now() + interval '1 minute' WHERE attempt = 0",
		"claimed and retried":       "UPDATE staged_jobs SET attempt = attempt + 1, run_at = now() WHERE attempt = 0",
		"failed":                    "UPDATE staged_jobs SET failed_at = now() WHERE attempt = 0",
		"deleted":                   "DELETE FROM staged_jobs WHERE attempt = 0",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := idempotencytest.NewPool(t)
			restage(t, pool, uuid.New(), uuid.New())
			calls := 0
			worker := newWorker(pool, func(ctx context.Context, _ jobs.Job) error {
				calls++
				_, err := pool.Exec(ctx, change)
				return err
			})
			worker.Concurrency = 1
			requirePass(t, worker, jobs.Result{jobs.Done: 1})
			require.Equal(t, 1, calls)
		})
	}
}

func TestRunOnce_lockedCandidate(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["lock_timeout"] = "50ms" })
	locked := uuid.New()
	restage(t, pool, locked, uuid.New())
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM staged_jobs WHERE id = $1 FOR UPDATE", locked)
	require.NoError(t, err)
	worker := newWorker(pool, returns(nil))
	requirePass(t, worker, jobs.Result{jobs.Done: 1})
	requirePass(t, worker, jobs.Result{})
	require.NoError(t, tx.Rollback(t.Context()))
	requirePass(t, worker, jobs.Result{jobs.Done: 1})
}

func TestRunOnce_leaseExpired(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]error{
		"success":           nil,
		"temporary failure": errors.New("no"),
		"permanent failure": jobs.ErrPermanent,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := idempotencytest.NewPool(t)
			restage(t, pool, uuid.New())
			other := newWorker(pool, returns(errors.New("the other")))
			var otherResult jobs.Result
			worker := newWorker(pool, func(ctx context.Context, _ jobs.Job) error {
				_, err := pool.Exec(ctx, makeDue)
				if err == nil {
					otherResult, err = other.RunOnce(ctx)
				}
				return errors.Join(err, late)
			})
			requirePass(t, worker, jobs.Result{jobs.Lost: 1})
			require.Equal(t, jobs.Result{jobs.Retried: 1}, otherResult)
			requireLeft(t, pool, leftJob{Attempt: 2, LastError: "the other"})
		})
	}
}

func TestRunOnce_killedBeforeDelete(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t)
	restage(t, pool, uuid.New())
	connections, err := pgxpool.NewWithConfig(t.Context(), pool.Config())
	require.NoError(t, err)
	killed := newWorker(connections, func(context.Context, jobs.Job) error {
		connections.Close()
		return nil
	})
	requirePass(t, killed, jobs.Result{jobs.Lost: 1})

	worker := newWorker(pool, returns(nil))
	requirePass(t, worker, jobs.Result{}) // still leased
	exec(t, pool, makeDue)
	requirePass(t, worker, jobs.Result{jobs.Done: 1})
}

// The worker was killed during each attempt.
func TestRunOnce_noAttemptEnded(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t)
	restage(t, pool, uuid.New())
	exec(t, pool, "UPDATE staged_jobs SET attempt = $1", jobs.MaxAttempts)
	requirePass(t, newWorker(pool, returns(errors.New("must not be called"))), jobs.Result{jobs.Failed: 1})
	requireLeft(t, pool, leftJob{Attempt: jobs.MaxAttempts + 1, LastError: "no attempt ended", Failed: true})
}

func TestRunOnce_temporaryFailure(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t)
	worker := newWorker(pool, returns(errors.New("greylisted")))
	restage(t, pool, uuid.New())
	const earlier = 6 // attempts, so that the pause is longer than this test
	exec(t, pool, "UPDATE staged_jobs SET attempt = $1", earlier)
	for attempt := 1 + earlier; attempt <= 3+earlier; attempt++ {
		requirePass(t, worker, jobs.Result{jobs.Retried: 1})
		requirePass(t, worker, jobs.Result{}) // not due
		requireLeft(t, pool, leftJob{Attempt: attempt, LastError: "greylisted"})
		var wait time.Duration
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT run_at - now() FROM staged_jobs").Scan(&wait))
		require.InEpsilon(t, time.Second<<(attempt-1), wait, 0.25, "doubles with each attempt")
		exec(t, pool, makeDue)
	}
}

func TestRunOnce_oneAttemptPerJob(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t)
	worker := newWorker(pool, func(ctx context.Context, _ jobs.Job) error {
		_, err := pool.Exec(ctx, makeDue+" WHERE last_error IS NOT NULL") // the other is due again
		return errors.Join(errors.New("no"), err)
	})
	worker.Concurrency = 1
	restage(t, pool, uuid.New(), uuid.New())
	requirePass(t, worker, jobs.Result{jobs.Retried: 2})
}

func TestRunOnce_noConnectionDuringAJob(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	restage(t, pool, uuid.New())
	requirePass(t, newWorker(pool, func(ctx context.Context, _ jobs.Job) error {
		_, err := pool.Exec(ctx, "SELECT 1") // would wait forever for the only connection
		return err
	}), jobs.Result{jobs.Done: 1})
}

// A cancelled pass finishes the job in progress and claims no other.
func TestRunOnce_cancelled(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t)
	ctx, stop := context.WithCancel(t.Context())
	worker := newWorker(pool, func(context.Context, jobs.Job) error {
		stop() // the job is done, and not yet deleted
		return nil
	})
	worker.Concurrency = 1
	restage(t, pool, uuid.New(), uuid.New())
	for _, want := range []jobs.Result{{jobs.Done: 1}, {}} {
		result, err := worker.RunOnce(ctx)
		require.NoError(t, err)
		require.Equal(t, want, result)
		requireLeft(t, pool, leftJob{})
	}
}

// A job that was staged while the database's clock ran ahead is done, and alerts until then.
func TestRunOnce_clockAhead(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t)
	restage(t, pool, uuid.New())
	exec(t, pool, "UPDATE staged_jobs SET created_at = now() + interval '2 hours', run_at = now() + interval '2 hours', attempt = 6")
	stats, err := jobs.ReadStats(t.Context(), pool, kind)
	require.NoError(t, err)
	require.InDelta(t, 2, stats[kind].Oldest.Hours(), 0.1)

	requirePass(t, newWorker(pool, returns(errors.New("no"))), jobs.Result{jobs.Retried: 1})
	requirePass(t, newWorker(pool, returns(nil)), jobs.Result{}) // not due
	exec(t, pool, makeDue)
	requirePass(t, newWorker(pool, returns(nil)), jobs.Result{jobs.Done: 1})
}

// Drain returns what has failed, and waits for the job that another worker runs.
func TestDrain(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t)
	held, failing, other := uuid.New(), uuid.New(), uuid.New()
	restage(t, pool, held)
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
	restage(t, pool, failing, other)
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

	restage(t, pool, held)
	_, err = newWorker(pool, returns(jobs.ErrMisconfigured)).Drain(t.Context())
	require.ErrorIs(t, err, jobs.ErrMisconfigured)
}
