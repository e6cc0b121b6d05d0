package idempotency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
)

// Reaper deletes finished keys that are past their retention, and with them what
// requests left here: parameters and responses. It never looks at an unfinished
// one, however old: that is the only pointer to a possible charge (R16). What a
// key made stays, so the key does not execute again (R17).
type Reaper struct {
	engine *Engine
	config ReaperConfig
	logger *slog.Logger
}

// ReaperConfig bounds a [Reaper]. All of it is needed.
type ReaperConfig struct {
	// Retention is how long a finished key is kept, by the database's clock. More
	// than a lease, and than any pause after which a client retries (R9).
	Retention time.Duration

	// Batch is how many keys one transaction deletes. A small one holds few
	// locks for a short time.
	Batch int
}

// NewReaper returns a reaper.
func NewReaper(engine *Engine, config ReaperConfig) (*Reaper, error) {
	switch {
	case engine == nil:
		return nil, errors.New("idempotency: a reaper needs an engine")
	case config.Retention <= engine.lockTimeout:
		return nil, fmt.Errorf("idempotency: the retention of %s must be more than the lease of %s (R9)", config.Retention, engine.lockTimeout)
	case config.Batch < 1:
		return nil, errors.New("idempotency: Batch must be positive")
	}
	return &Reaper{engine: engine, config: config, logger: engine.logger}, nil
}

// RunOnce deletes what is past its retention, batch by batch, until none is left
// or ctx ends, and returns how many keys that were. After each batch it rests
// for as long as the batch took, so that live traffic has at least every other
// moment to itself.
func (r *Reaper) RunOnce(ctx context.Context) (int, error) {
	total := 0
	var from time.Time
	for ctx.Err() == nil {
		start := r.engine.clock()
		deleted, last, err := r.reap(ctx, from)
		total, from = total+deleted, last
		if err != nil && ctx.Err() == nil {
			return total, fmt.Errorf("reap keys: %w", err)
		}
		if deleted < r.config.Batch {
			break
		}
		rest := time.NewTimer(r.engine.clock().Sub(start))
		select {
		case <-rest.C:
		case <-ctx.Done():
			rest.Stop()
		}
	}
	return total, nil
}

// reapSQL deletes one batch, the oldest first, and passes over what somebody has
// locked. Only a finished key has a finished_at: the schema sees to it. The batch
// begins where the one before it ended, because the index keeps what was deleted
// until a vacuum, and going through all of that again and again would make the
// hundredth batch a hundred times as dear as the first.
const reapSQL = `
WITH past AS MATERIALIZED (
    SELECT account_id,
           id
      FROM idempotency_keys
     WHERE finished_at <= now() - $1::interval
       AND finished_at >= $3
     ORDER BY finished_at
     LIMIT $2
       FOR UPDATE SKIP LOCKED
), reaped AS (
    DELETE FROM idempotency_keys AS k
     USING past
     WHERE k.account_id = past.account_id
       AND k.id = past.id
    RETURNING k.finished_at
)
SELECT count(*), coalesce(max(finished_at), $3) FROM reaped`

// reap deletes one batch of keys that finished at from or later. It returns how
// many that were, and when the last of them had finished.
func (r *Reaper) reap(ctx context.Context, from time.Time) (int, time.Time, error) {
	deleted, last := 0, from
	err := r.engine.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, reapSQL, r.config.Retention, r.config.Batch, from).Scan(&deleted, &last)
	})
	return deleted, last, err
}

// Count returns how many keys a pass would delete now.
func (r *Reaper) Count(ctx context.Context) (int, error) {
	var n int
	err := r.engine.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `
SELECT count(*)
  FROM idempotency_keys
 WHERE finished_at <= now() - $1::interval`, r.config.Retention).Scan(&n)
	})
	return n, err
}

// Overdue returns how many keys are unfinished although they are past the
// retention. They are kept (R16), and somebody should look at them. The query
// names both of the indexes that hold what is unfinished.
func (r *Reaper) Overdue(ctx context.Context) (int, error) {
	var n int
	err := r.engine.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `
SELECT count(*)
  FROM idempotency_keys
 WHERE finished_at IS NULL
   AND (needs_review_at IS NULL OR needs_review_at IS NOT NULL)
   AND created_at <= now() - $1::interval`, r.config.Retention).Scan(&n)
	})
	return n, err
}
