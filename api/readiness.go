package api

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// readyMaxAge is how long a result is used.
	readyMaxAge = time.Second

	// readyTimeout bounds a check. Probes wait longer.
	readyTimeout = 2 * time.Second
)

var errDraining = errors.New("shutting down")

// Readiness reports whether this process should get traffic. All probes share one check
// per second, so none is rejected (R25). It is safe for concurrent use.
type Readiness struct {
	check    func(context.Context) error
	draining atomic.Bool

	mu   sync.Mutex
	last *readyCheck
}

// readyCheck is a check that runs, or its result once done is closed.
type readyCheck struct {
	done  chan struct{}
	err   error
	ended time.Time
}

// NewReadiness returns a Readiness that calls check at most once per second.
func NewReadiness(check func(context.Context) error) *Readiness { return &Readiness{check: check} }

// Drain makes the process not ready from now on.
func (r *Readiness) Drain() { r.draining.Store(true) }

// Check returns nil if the process is ready, otherwise the reason.
func (r *Readiness) Check(ctx context.Context) error {
	if r.draining.Load() {
		return errDraining
	}
	current, started := r.current()
	if started {
		r.run(ctx, current)
	}
	select {
	case <-current.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if r.draining.Load() {
		return errDraining
	}
	return current.err
}

// current returns the check to wait for, and whether the caller has to run it.
func (r *Readiness) current() (current *readyCheck, started bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last != nil {
		select {
		case <-r.last.done:
			if time.Since(r.last.ended) < readyMaxAge {
				return r.last, false
			}
		default:
			return r.last, false
		}
	}
	r.last = &readyCheck{done: make(chan struct{}), err: errNotReady}
	return r.last, true
}

// run runs the check without the caller's deadline, because others wait for it.
func (r *Readiness) run(ctx context.Context, current *readyCheck) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
	defer cancel()
	defer func() {
		current.ended = time.Now()
		close(current.done)
	}()
	current.err = r.check(ctx)
}
