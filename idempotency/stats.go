package idempotency

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

// Stats is how the keys are doing, over all accounts.
type Stats struct {
	Unfinished []Unfinished // none without keys

	NeedsReview       int           // keys that the completer gave up
	OldestNeedsReview time.Duration // since the first of them was given up; 0 when there is none

	// OldestFinished is how long ago the first of the finished keys was finished, 0
	// when there is none. A reaper that does its work keeps it below the retention.
	OldestFinished time.Duration
}

// Unfinished counts the unfinished keys of an operation at a recovery point, those
// in work included and those that need review not.
type Unfinished struct {
	Operation string
	Point     RecoveryPoint
	Keys      int
	Oldest    time.Duration // since the first of them was claimed

	// Untried is how long ago the last run of a key began that the completer has
	// never tried, the longest of all. A completer that does its work keeps it near
	// its grace.
	Untried time.Duration
}

// unfinishedSQL names the condition of the index that holds what is unfinished:
// a few keys among millions.
const unfinishedSQL = `
SELECT operation,
       recovery_point,
       count(*),
       now() - min(created_at),
       coalesce(now() - min(last_run_at) FILTER (WHERE completer_attempt = 0), interval '0')
  FROM idempotency_keys
 WHERE finished_at IS NULL
   AND needs_review_at IS NULL
 GROUP BY operation, recovery_point
 ORDER BY operation, recovery_point`

const needsReviewSQL = `
SELECT count(*),
       coalesce(now() - min(needs_review_at), interval '0')
  FROM idempotency_keys
 WHERE finished_at IS NULL
   AND needs_review_at IS NOT NULL`

const oldestFinishedSQL = `
SELECT now() - finished_at
  FROM idempotency_keys
 WHERE finished_at IS NOT NULL
 ORDER BY finished_at
 LIMIT 1`

// ReadStats counts the keys, in one round trip. It needs no engine, since it
// changes nothing, and ends with ctx.
func ReadStats(ctx context.Context, pool *pgxpool.Pool) (Stats, error) {
	var stats Stats
	batch := &pgx.Batch{}
	batch.Queue(unfinishedSQL).Query(func(rows pgx.Rows) error {
		var err error
		stats.Unfinished, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Unfinished])
		return err
	})
	batch.Queue(needsReviewSQL).QueryRow(func(row pgx.Row) error {
		return row.Scan(&stats.NeedsReview, &stats.OldestNeedsReview)
	})
	batch.Queue(oldestFinishedSQL).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&stats.OldestFinished)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	if err := pool.SendBatch(ctx, batch).Close(); err != nil {
		return Stats{}, postgres.Translate(err)
	}
	return stats, nil
}
