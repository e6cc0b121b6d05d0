package idempotency

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

// Engine executes operations under idempotency keys. It is safe for concurrent use.
type Engine struct {
	store   *store
	clock   func() time.Time
	onStep  StepHook
	waiters *waiters
	logger  *slog.Logger
}

// Config configures an [Engine].
type Config struct {
	// LockTimeout is the length of a lease (R8). External calls must end well before
	// it (R9).
	LockTimeout time.Duration

	// Clock is time.Now. It measures the rest of a lease; the database decides
	// whether a lease has expired.
	Clock func() time.Time

	// Waiters bounds the requests that wait at once, see [Engine.AwaitTurn].
	Waiters int

	// OnStep, if set, is for metrics and traces.
	OnStep StepHook

	Logger *slog.Logger
}

// StepHook is called before each step, which runs on the returned context. The
// returned function is called after the step. Both block the step: keep them fast.
type StepHook func(ctx context.Context, step StepStart) (context.Context, func(StepEnd))

// StepStart identifies a step.
type StepStart struct {
	Operation string
	KeyID     uuid.UUID
	Attempt   int // 0 for the step that claims the key
	From      RecoveryPoint
}

// StepEnd is the result of a step. Parts that did not run have the duration 0.
type StepEnd struct {
	To           RecoveryPoint
	Call, Commit time.Duration
	Err          error
}

// New returns an engine on pool, whose configuration must come from
// [postgres.Configure].
func New(pool *pgxpool.Pool, config Config) (*Engine, error) {
	switch {
	case !postgres.IsConfigured(pool.Config()):
		return nil, errors.New("idempotency: the pool was not made with postgres.Configure")
	case config.LockTimeout <= 0:
		return nil, errors.New("idempotency: LockTimeout must be positive")
	case config.Clock == nil || config.Logger == nil:
		return nil, errors.New("idempotency: Clock and Logger are required")
	}
	if config.OnStep == nil {
		config.OnStep = func(ctx context.Context, _ StepStart) (context.Context, func(StepEnd)) { return ctx, func(StepEnd) {} }
	}
	store := &store{pool: pool, lockTimeout: config.LockTimeout}
	return &Engine{
		store:   store,
		clock:   config.Clock,
		onStep:  config.OnStep,
		waiters: newWaiters(config.Waiters, store.poll, config.Logger),
		logger:  config.Logger,
	}, nil
}
