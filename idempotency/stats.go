package idempotency

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

// Stats counts the keys of all accounts, for metrics.
type Stats struct {
	Unfinished []Unfinished // none without keys

	ActionRequired       int           // keys that require an action
	OldestActionRequired time.Duration // since the first of them was claimed; 0 if there is none

	NeedsReview       int           // keys marked by the completer
	OldestNeedsReview time.Duration // since the first of them was marked; 0 if there is none

	// OldestFinished is the age of the oldest finished key, 0 if there is none. A
	// reaper that runs keeps it below the retention.
	OldestFinished time.Duration
}

// Unfinished counts the unfinished keys of an operation at a recovery point,
// including leased keys and excluding those that need review or an action.
type Unfinished struct {
	Operation string
	Point     RecoveryPoint
	Keys      int
	Oldest    time.Duration // since the first of them was claimed

	// OldestUnattempted is the longest time since the last run of a key that the
	// completer has not attempted yet. A completer that runs keeps it near its grace.
	OldestUnattempted time.Duration
}

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
	batch.Queue(statsActionRequiredSQL).QueryRow(func(row pgx.Row) error {
		return row.Scan(&stats.ActionRequired, &stats.OldestActionRequired)
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
