package receipts_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/wneessen/go-mail"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/receipts"
)

func TestRunOnce_concurrentWorkers(t *testing.T) {
	t.Parallel()
	const orders = 100 + 20
	f := newFixture(t)
	want := map[uuid.UUID]int{}
	for range orders {
		want[f.insertPaidOrder(t, "jane@example.com")] = 1
	}
	f.exec(t, makeDue)
	var mu sync.Mutex
	got := map[uuid.UUID]int{}
	mailer := mailerFunc(func(_ context.Context, orderID uuid.UUID, receipt *mail.Msg) error {
		mu.Lock()
		defer mu.Unlock()
		got[orderID]++
		return nil
	})
	var workers errgroup.Group
	sent := 0
	for range 4 {
		worker := f.worker(t, mailer)
		workers.Go(func() error {
			result, err := worker.RunOnce(t.Context())
			mu.Lock()
			defer mu.Unlock()
			sent += result[jobs.Done]
			return err
		})
	}
	require.NoError(t, workers.Wait())
	require.Equal(t, want, got)
	require.Equal(t, orders, sent)
	require.Empty(t, f.jobs(t))
}

func TestRunOnce_changedCandidate(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"claimed by another worker": `UPDATE staged_jobs SET attempt = attempt + 1, run_at = now() + interval '1 minute' WHERE id = $1`,
		"claimed and retried":       `UPDATE staged_jobs SET attempt = attempt + 1, run_at = now() WHERE id = $1`,
		"failed":                    `UPDATE staged_jobs SET failed_at = now() WHERE id = $1`,
		"deleted":                   `DELETE FROM staged_jobs WHERE id = $1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.insertPaidOrder(t, "first@example.com")
			f.insertPaidOrder(t, "second@example.com")
			worker := f.worker(t, mailerFunc(func(ctx context.Context, _ uuid.UUID, _ *mail.Msg) error {
				var second string
				err := f.pool.QueryRow(ctx, `SELECT id FROM staged_jobs WHERE attempt = 0`).Scan(&second)
				if err == nil {
					_, err = f.pool.Exec(ctx, change, second)
				}
				return err
			}), func(w *jobs.Worker) { w.Concurrency = 1 })
			requirePass(t, worker, jobs.Result{jobs.Done: 1})
			for _, j := range f.jobs(t) {
				require.LessOrEqual(t, j.Attempt, 1, "not claimed by this worker")
				require.Empty(t, j.LastError)
			}
		})
	}
}

func TestRunOnce_lockedCandidate(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["lock_timeout"] = "50ms" })
	locked := f.insertPaidOrder(t, "first@example.com")
	f.insertPaidOrder(t, "second@example.com")
	tx, err := f.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM staged_jobs WHERE args->>'order_id' = $1 FOR UPDATE`, locked.String())
	require.NoError(t, err)
	worker := f.worker(t, returns(nil))
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
			f := newFixture(t)
			other := f.worker(t, returns(errors.New("the other")))
			f.insertPaidOrder(t, "jane@example.com")
			var otherResult jobs.Result
			worker := f.worker(t, mailerFunc(func(ctx context.Context, _ uuid.UUID, _ *mail.Msg) error {
				_, err := f.pool.Exec(ctx, makeDue)
				if err == nil {
					otherResult, err = other.RunOnce(ctx)
				}
				return errors.Join(err, late)
			}))
			requirePass(t, worker, jobs.Result{jobs.Lost: 1})
			require.Equal(t, jobs.Result{jobs.Retried: 1}, otherResult)

			jobs := f.jobs(t)
			require.Len(t, jobs, 1)
			require.Equal(t, 2, jobs[0].Attempt)
			require.Equal(t, "the other", jobs[0].LastError)
			require.False(t, jobs[0].Failed)
		})
	}
}

func TestRunOnce_killedBeforeDelete(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	server := newMailServer(t, script{})
	order := f.insertPaidOrder(t, "jane@example.com")

	pool, err := pgxpool.NewWithConfig(t.Context(), f.pool.Config())
	require.NoError(t, err)
	mailer := newSMTP(t, server.url())
	killed := receipts.NewWorker(pool, f.find(), mailerFunc(func(ctx context.Context, orderID uuid.UUID, receipt *mail.Msg) error {
		defer pool.Close()
		return mailer.Send(ctx, orderID, receipt)
	}), "shop@example.com", slog.New(slog.DiscardHandler))
	requirePass(t, killed, jobs.Result{jobs.Lost: 1})

	worker := f.worker(t, mailer)
	requirePass(t, worker, jobs.Result{}) // still leased
	f.exec(t, makeDue)
	requirePass(t, worker, jobs.Result{jobs.Done: 1})
	require.Empty(t, f.jobs(t))
	require.Len(t, server.mails(), 2)
	for _, got := range server.mails() {
		require.Equal(t, "<receipt."+order.String()+"@example.com>", receipts.ParseMail(t, got.raw).Header.Get("Message-Id"))
	}
}

// The worker was killed during each attempt.
func TestRunOnce_noAttemptEnded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	worker := f.worker(t, returns(errors.New("must not be called")))
	f.insertPaidOrder(t, "jane@example.com")
	f.exec(t, `UPDATE staged_jobs SET attempt = $1`, jobs.MaxAttempts)

	requirePass(t, worker, jobs.Result{jobs.Failed: 1})
	require.Contains(t, f.jobs(t)[0].LastError, "no attempt ended")
}
