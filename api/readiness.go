package api

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

const readyTimeout = 2 * time.Second // of a check; probes wait longer

var errDraining = errors.New("shutting down")

// Readiness reports whether this process should get traffic.
type Readiness struct {
	check    func(context.Context) error
	draining atomic.Bool
	checks   shared[bool]
}

// NewReadiness returns a Readiness.
func NewReadiness(check func(context.Context) error) *Readiness { return &Readiness{check: check} }

// Drain makes the process not ready from now on.
func (r *Readiness) Drain() { r.draining.Store(true) }

// Check returns nil, or the reason why the process is not ready.
func (r *Readiness) Check(ctx context.Context) error {
	if r.draining.Load() {
		return errDraining
	}
	_, err := r.checks.get(ctx, uuid.Nil, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, readyTimeout)
		defer cancel()
		err := r.check(ctx)
		return err == nil, err
	})
	if r.draining.Load() {
		return errDraining
	}
	return err
}
