package idempotency

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

// Stats counts the keys of all accounts, for metrics. An age is 0 if there is no such
// key.
type Stats struct {
	Unfinished []Unfinished

	OldestActionRequired time.Duration // since it was claimed

	NeedsReview int

	// OldestFinished is an age. A running reaper keeps it below the retention.
	OldestFinished time.Duration
}

// Unfinished counts the unfinished keys of an operation at a recovery point, without
// those that need review or an action.
type Unfinished struct {
	Operation string
	Point     RecoveryPoint
	Keys      int
	Oldest    time.Duration // since it was claimed

	// OldestUnattempted is the longest time since the last run of a key that the
	// completer has not attempted. A running completer keeps it near its grace.
	OldestUnattempted time.Duration
}

// ReadStats counts the keys in one round trip.
func ReadStats(ctx context.Context, pool *pgxpool.Pool) (Stats, error) {
	var stats Stats
	batch := &pgx.Batch{}
	batch.Queue(unfinishedSQL).Query(func(rows pgx.Rows) error {
		var err error
		stats.Unfinished, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Unfinished])
		return err
	})
	for query, value := range map[string]any{
		statsActionRequiredSQL: &stats.OldestActionRequired,
		needsReviewSQL:         &stats.NeedsReview,
		oldestFinishedSQL:      &stats.OldestFinished,
	} {
		batch.Queue(query).QueryRow(func(row pgx.Row) error { return row.Scan(value) })
	}
	if err := pool.SendBatch(ctx, batch).Close(); err != nil {
		return Stats{}, postgres.Translate(err)
	}
	return stats, nil
}
