package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Reaper deletes finished keys past their retention, but never an unfinished key: it
// may be the only pointer to a charge (R16). The deleted keys stay in expired_keys
// (R17).
type Reaper struct {
	engine *Engine
	config ReaperConfig
}

// ReaperConfig configures a [Reaper]. All fields are required.
type ReaperConfig struct {
	// Retention is how long a finished key is kept: longer than any client retries
	// (R9).
	Retention time.Duration

	// Batch is how many keys one transaction deletes.
	Batch int
}

// NewReaper returns a reaper.
func NewReaper(engine *Engine, config ReaperConfig) (*Reaper, error) {
	switch {
	case config.Retention <= engine.store.lockTimeout:
		return nil, fmt.Errorf("idempotency: the retention of %s must be more than the lease of %s (R9)", config.Retention, engine.store.lockTimeout)
	case config.Batch < 1:
		return nil, errors.New("idempotency: Batch must be positive")
	}
	return &Reaper{engine: engine, config: config}, nil
}

// RunOnce deletes expired keys in batches until none is left or ctx ends, and returns
// their number. It pauses for as long as each batch took, to use at most half of the
// database's time.
func (r *Reaper) RunOnce(ctx context.Context) (int, error) {
	total := 0
	var from time.Time
	for ctx.Err() == nil {
		start := r.engine.clock()
		keys, err := r.engine.store.candidates(ctx, expiredSQL, r.config.Retention, r.config.Batch, from)
		deleted, last := 0, from
		if err == nil && len(keys) > 0 {
			last = keys[len(keys)-1].At
			deleted, err = r.engine.store.delete(ctx, r.config.Retention, keys)
		}
		total += deleted
		if err != nil && ctx.Err() == nil {
			return total, fmt.Errorf("reap keys: %w", err)
		}
		if len(keys) < r.config.Batch || deleted == 0 && last.Equal(from) { // all locked, the next batch would be the same
			break
		}
		from = last
		select {
		case <-time.After(r.engine.clock().Sub(start)):
		case <-ctx.Done():
		}
	}
	return total, nil
}

// Count returns how many keys RunOnce would delete now.
func (r *Reaper) Count(ctx context.Context) (n int, err error) {
	err = r.engine.store.queryRow(ctx, countExpiredSQL, []any{r.config.Retention}, &n)
	return n, err
}
