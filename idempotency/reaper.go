package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Reaper deletes finished keys past their retention (R16).
type Reaper struct {
	engine *Engine
	config ReaperConfig
}

// ReaperConfig configures a [Reaper]. All fields are required.
type ReaperConfig struct {
	Retention time.Duration // longer than any client retries
	Batch     int           // keys that one transaction deletes
}

// NewReaper returns a reaper, whose retention must be longer than a lease (R9).
func NewReaper(engine *Engine, config ReaperConfig) (*Reaper, error) {
	switch lease := engine.config.LockTimeout; {
	case config.Retention <= lease:
		return nil, fmt.Errorf("idempotency: the retention of %s must be more than the lease of %s", config.Retention, lease)
	case config.Batch < 1:
		return nil, errors.New("idempotency: Batch must be positive")
	}
	return &Reaper{engine: engine, config: config}, nil
}

// RunOnce deletes expired keys until none is left or ctx ends, and returns their number.
// It pauses for as long as each batch took, to use at most half of the database's time.
func (r *Reaper) RunOnce(ctx context.Context) (total int, err error) {
	var from time.Time
	for ctx.Err() == nil {
		start := r.engine.config.Clock()
		keys, err := collect[candidate](ctx, r.engine.store, expiredSQL, r.config.Retention, r.config.Batch, from)
		deleted, last := 0, from
		if err == nil && len(keys) > 0 {
			last = keys[len(keys)-1].At
			deleted, err = r.engine.store.delete(ctx, r.config.Retention, keys)
		}
		total += deleted
		if err != nil && ctx.Err() == nil {
			return total, fmt.Errorf("reap keys: %w", err)
		}
		if len(keys) < r.config.Batch || deleted == 0 && last.Equal(from) { // all locked
			break
		}
		from = last
		select {
		case <-time.After(r.engine.config.Clock().Sub(start)):
		case <-ctx.Done():
		}
	}
	return total, nil
}

// Count returns how many keys RunOnce would delete now.
func (r *Reaper) Count(ctx context.Context) (n int, err error) {
	err = r.engine.store.queryRow(ctx, "SELECT count(*) FROM idempotency_keys WHERE finished_at <= now() - $1::interval", []any{r.config.Retention}, &n)
	return n, err
}
