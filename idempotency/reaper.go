package idempotency

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Reap deletes finished keys past their retention, in transactions of at most batch keys,
// until none is left or ctx ends (R16). It pauses for as long as each batch took, to use at
// most half of the database's time.
func (e *Engine) Reap(ctx context.Context, retention time.Duration, batch int) (total int, err error) {
	if retention <= e.config.LockTimeout {
		return 0, fmt.Errorf("idempotency: the retention of %s must be more than the lease of %s (R9)", retention, e.config.LockTimeout)
	}
	var from time.Time
	for ctx.Err() == nil {
		start := e.config.Clock()
		keys, err := collect(ctx, e.store, pgx.RowToStructByPos[candidate], expiredSQL, retention, batch, from)
		deleted, last := 0, from
		if err == nil && len(keys) > 0 {
			last = keys[len(keys)-1].At
			deleted, err = e.store.delete(ctx, retention, keys)
		}
		total += deleted
		if err != nil && ctx.Err() == nil {
			return total, fmt.Errorf("reap keys: %w", err)
		}
		if len(keys) < batch || deleted == 0 && last.Equal(from) { // all locked
			break
		}
		from = last
		select {
		case <-time.After(e.config.Clock().Sub(start)):
		case <-ctx.Done():
		}
	}
	return total, nil
}

// CountExpired returns how many keys Reap would delete now.
func (e *Engine) CountExpired(ctx context.Context, retention time.Duration) (n int, err error) {
	err = e.store.queryRow(ctx, "SELECT count(*) FROM idempotency_keys WHERE finished_at <= now() - $1::interval", []any{retention}, &n)
	return n, err
}
