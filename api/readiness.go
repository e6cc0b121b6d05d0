package api

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

const (
	readyMaxAge  = time.Second     // how long a result is used
	readyTimeout = 2 * time.Second // of a check; probes wait longer
)

var errDraining = errors.New("shutting down")

// Readiness reports whether this process should get traffic. Probes share one check per
// second (R25).
type Readiness struct {
	check    func(context.Context) error
	draining atomic.Bool

	turn  chan struct{} // holds a value while a probe uses the fields below
	ended time.Time     // of the last check
	err   error         // its result
}

// NewReadiness returns a Readiness.
func NewReadiness(check func(context.Context) error) *Readiness {
	return &Readiness{check: check, turn: make(chan struct{}, 1)}
}

// Drain makes the process not ready from now on.
func (r *Readiness) Drain() { r.draining.Store(true) }

// Check returns nil, or the reason why the process is not ready.
func (r *Readiness) Check(ctx context.Context) error {
	if r.draining.Load() {
		return errDraining
	}
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-r.turn }()
	if time.Since(r.ended) >= readyMaxAge {
		// Without the probe's deadline, because other probes wait for the result.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
		defer cancel()
		r.err = r.check(ctx)
		r.ended = time.Now()
	}
	if r.draining.Load() {
		return errDraining
	}
	return r.err
}
