package receipts_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/receipts"
)

// All jobs are due at the same time and fill several batches.
func TestRunOnce_concurrentWorkers(t *testing.T) {
	t.Parallel()
	const orders = 2*receipts.BatchSize + 50
	shop := newShop(t)
	want := map[uuid.UUID]int{}
	for range orders {
		want[shop.sell(t, "jane@example.com")] = 1
	}
	shop.exec(t, makeDue)
	var mu sync.Mutex
	got := map[uuid.UUID]int{}
	mailer := mailerFunc(func(_ context.Context, message receipts.Message) error {
		mu.Lock()
		defer mu.Unlock()
		got[message.OrderID]++
		return nil
	})
	var workers errgroup.Group
	sent := 0
	for range 4 {
		worker := shop.worker(t, mailer)
		workers.Go(func() error {
			result, err := worker.RunOnce(t.Context())
			mu.Lock()
			defer mu.Unlock()
			sent += result.Sent
			return err
		})
	}
	require.NoError(t, workers.Wait())
	require.Equal(t, want, got)
	require.Equal(t, orders, sent)
	require.Empty(t, shop.jobs(t))
}

func TestRunOnce_changedCandidate(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"claimed by another worker": `UPDATE staged_jobs SET attempt = attempt + 1, run_at = now() + interval '1 hour' WHERE id = $1`,
		"claimed and retried":       `UPDATE staged_jobs SET attempt = attempt + 1, run_at = now() WHERE id = $1`,
		"postponed":                 `UPDATE staged_jobs SET run_at = now() + interval '1 hour' WHERE id = $1`,
		"failed":                    `UPDATE staged_jobs SET failed_at = now() WHERE id = $1`,
		"deleted":                   `DELETE FROM staged_jobs WHERE id = $1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shop := newShop(t)
			shop.sell(t, "first@example.com")
			shop.sell(t, "second@example.com")
			var changed string
			worker := shop.worker(t, mailerFunc(func(ctx context.Context, _ receipts.Message) error {
				// The worker has read both jobs and claimed the first.
				err := shop.pool.QueryRow(ctx, `SELECT id FROM staged_jobs WHERE attempt = 0`).Scan(&changed)
				if err == nil {
					_, err = shop.pool.Exec(ctx, change, changed)
				}
				return err
			}), func(c *receipts.Config) { c.Concurrency = 1 })
			pass(t, worker, receipts.Result{Sent: 1})
			for _, j := range shop.jobs(t) {
				require.LessOrEqual(t, j.Attempt, 1, "not claimed by this worker")
				require.Empty(t, j.LastError)
			}
		})
	}
}

// A row that another transaction holds keeps the worker from no other job.
func TestRunOnce_lockedCandidate(t *testing.T) {
	t.Parallel()
	shop := newShop(t, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["lock_timeout"] = "50ms" })
	locked := shop.sell(t, "first@example.com")
	shop.sell(t, "second@example.com")
	tx, err := shop.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM staged_jobs WHERE args->>'order_id' = $1 FOR UPDATE`, locked.String())
	require.NoError(t, err)
	worker := shop.worker(t, mailerFunc(func(context.Context, receipts.Message) error { return nil }))
	pass(t, worker, receipts.Result{Sent: 1})
	pass(t, worker, receipts.Result{})
	require.NoError(t, tx.Rollback(t.Context()))
	pass(t, worker, receipts.Result{Sent: 1})
}

// The statements of the worker use an index whatever their arguments, and read the
// candidates in the order of the index.
func TestPlans_useIndexes(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	shop.exec(t, `
INSERT INTO staged_jobs (id, account_id, kind, args, run_at, failed_at)
SELECT gen_random_uuid(), $1, 'receipt', '{}', now() + n * interval '1 minute', CASE WHEN n % 2 = 0 THEN now() END
  FROM generate_series(1, 10000) n`, shop.account)
	shop.exec(t, "ANALYZE staged_jobs")
	conn, err := shop.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	execute := func(sql string) string {
		results, err := conn.Conn().PgConn().Exec(t.Context(), sql).ReadAll()
		require.NoError(t, err, sql)
		var text strings.Builder
		for _, row := range results[0].Rows {
			text.Write(append(row[0], '\n'))
		}
		return text.String()
	}
	execute("SET plan_cache_mode = force_generic_plan")
	for statement, index := range receipts.Statements {
		arguments := "NULL"
		for n := 2; strings.Contains(statement, fmt.Sprint("$", n)); n++ {
			arguments += ", NULL"
		}
		execute("PREPARE statement AS " + statement)
		plan := execute("EXPLAIN EXECUTE statement(" + arguments + ")")
		execute("DEALLOCATE statement")
		require.Contains(t, plan, index)
		require.NotContains(t, plan, "Seq Scan")
		require.NotContains(t, plan, "Sort")
	}
}
