package receipts_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/receipts"
)

func TestOnePassTriesEachJobOnce(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	worker := shop.worker(t, mailerFunc(func(context.Context, receipts.Message) error { return errors.New("no") }),
		func(c *receipts.Config) { c.Backoff = func(int) time.Duration { return 0 } })
	shop.sell(t, "jane@example.com")
	shop.sell(t, "joe@example.com")
	pass(t, worker, receipts.Result{Retried: 2})
}

func TestSlowMailServerIsCutOff(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	server := newMailServer(t, script{onData: waitForEnd(t)})
	worker := shop.worker(t, newSMTP(t, server.url()), func(c *receipts.Config) { c.SendTimeout = 50 * time.Millisecond })
	shop.sell(t, "jane@example.com")
	pass(t, worker, receipts.Result{Retried: 1})
	require.Contains(t, shop.jobs(t)[0].LastError, "deadline exceeded")
}

func TestStoppedWorkerFinishesTheMailInHand(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	ctx, stop := context.WithCancel(t.Context())
	server := newMailServer(t, script{onData: func(net.Conn) error {
		stop() // the mail is accepted, its job not yet deleted
		return nil
	}})
	shop.sell(t, "jane@example.com")
	shop.sell(t, "joe@example.com")
	worker := shop.worker(t, newSMTP(t, server.url()), func(c *receipts.Config) { c.Concurrency = 1 })

	result, err := worker.RunOnce(ctx)
	require.NoError(t, err)
	require.Equal(t, receipts.Result{Sent: 1}, result)
	require.Len(t, server.mails(), 1)
	jobs := shop.jobs(t)
	require.Len(t, jobs, 1, "the one in hand is done")
	require.Zero(t, jobs[0].Attempt, "the other was not touched")

	require.NoError(t, worker.Run(ctx, time.Hour), "and none is begun")
	require.Len(t, server.mails(), 1)
}

func TestRunWakesForTheNextRetry(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	shop.sell(t, "jane@example.com")
	ctx, stop := context.WithCancel(t.Context())
	attempts := 0
	worker := shop.worker(t, mailerFunc(func(context.Context, receipts.Message) error {
		if attempts++; attempts < 3 {
			return errors.New("no")
		}
		stop()
		return nil
	}), func(c *receipts.Config) { c.Backoff = func(int) time.Duration { return time.Millisecond } })

	require.NoError(t, worker.Run(ctx, time.Hour)) // polling alone would take two hours
	require.Equal(t, 3, attempts)
	require.Empty(t, shop.jobs(t))
}

func TestRunRefusesToSpin(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	require.Error(t, shop.worker(t, mailerFunc(nil)).Run(t.Context(), 0))
}

func TestStats(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	stats, err := receipts.ReadStats(t.Context(), shop.pool)
	require.NoError(t, err)
	require.Equal(t, receipts.Stats{}, stats)

	shop.sell(t, "jane@example.com")
	old := shop.sell(t, "joe@example.com")
	dead := shop.sell(t, "jim@example.com")
	shop.stageRaw(t, "invoice", `{}`)
	shop.exec(t, `UPDATE staged_jobs SET created_at = now() - interval '50 hours' WHERE args->>'order_id' = $1`, old.String())
	shop.exec(t, `UPDATE staged_jobs SET failed_at = now(), created_at = now() - interval '90 days' WHERE args->>'order_id' = $1`, dead.String())

	stats, err = receipts.ReadStats(t.Context(), shop.pool)
	require.NoError(t, err)
	require.Equal(t, 2, stats.Waiting)
	require.Equal(t, 1, stats.Dead)
	require.InDelta(t, 50, stats.Oldest.Hours(), 0.1)
}

// A handful is found by an index among many: the dead among the waiting, and the
// waiting among the dead.
func TestStats_plans(t *testing.T) {
	t.Parallel()
	for index, fewDead := range map[string]bool{"staged_jobs_failed_idx": true, "staged_jobs_pending_idx": false} {
		t.Run(index, func(t *testing.T) {
			t.Parallel()
			shop := newShop(t)
			shop.exec(t, `
				INSERT INTO staged_jobs (id, account_id, kind, args, failed_at)
				SELECT gen_random_uuid(), $1, 'receipt', '{}', CASE WHEN (n % 1000 = 0) = $2 THEN now() END
				FROM generate_series(1, 5000) n`, shop.account, fewDead)
			shop.exec(t, "ANALYZE staged_jobs")
			rows, err := shop.pool.Query(t.Context(), "EXPLAIN "+receipts.StatsSQL, "receipt")
			require.NoError(t, err)
			plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err)
			require.Contains(t, strings.Join(plan, "\n"), index)
		})
	}
}

func TestObserve(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	shop.sell(t, "jane@example.com")
	var mu sync.Mutex
	var heard []string
	answers := []error{errors.New("busy"), nil}
	worker := shop.worker(t, mailerFunc(func(context.Context, receipts.Message) error {
		answer := answers[0]
		answers = answers[1:]
		return answer
	}), func(c *receipts.Config) {
		c.Observe = func(outcome string, took time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, outcome)
			require.Positive(t, took)
		}
	})
	pass(t, worker, receipts.Result{Retried: 1})
	shop.exec(t, makeDue)
	pass(t, worker, receipts.Result{Sent: 1})
	require.Equal(t, []string{"retried", "sent"}, heard)
}

func TestDatabaseAwayIsAnError(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	worker := shop.worker(t, mailerFunc(nil))
	shop.pool.Close()
	_, err := worker.RunOnce(t.Context())
	require.ErrorContains(t, err, "receipts: find the next job")
	_, err = receipts.ReadStats(t.Context(), shop.pool)
	require.Error(t, err)
}
