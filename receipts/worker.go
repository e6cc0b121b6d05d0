package receipts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// queryTimeout bounds one statement, including the wait for a connection. It
	// equals the statement_timeout of R21.
	queryTimeout = 10 * time.Second

	// minPause keeps Run from spinning while a due job cannot be claimed.
	minPause = 100 * time.Millisecond
)

// Worker sends the receipts of the jobs that are due. Any number of workers may run
// at once.
type Worker struct {
	store    store
	mailer   Mailer
	renderer *renderer
	config   Config
	logger   *slog.Logger
}

// NewWorker returns a worker that finds jobs through pool and sends with mailer.
func NewWorker(pool *pgxpool.Pool, mailer Mailer, config Config, logger *slog.Logger) (*Worker, error) {
	if pool == nil || mailer == nil || logger == nil {
		return nil, errors.New("receipts: a worker needs a pool, a mailer and a logger")
	}
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	renderer, err := newRenderer(config.From)
	if err != nil {
		return nil, err
	}
	return &Worker{store: store{pool}, mailer: mailer, renderer: renderer, config: config, logger: logger}, nil
}

// ReadStats counts the jobs, for metrics.
func ReadStats(ctx context.Context, pool *pgxpool.Pool) (Stats, error) { return store{pool}.stats(ctx) }

// RunOnce makes one pass: it tries every job once that is due when it starts. A job
// that fails does not keep it from the others. When ctx is cancelled RunOnce claims
// no more jobs, finishes those in progress within SendTimeout, and returns without
// an error. An error means that the database failed while RunOnce searched or
// claimed jobs; the result counts what was done until then.
func (w *Worker) RunOnce(ctx context.Context) (Result, error) {
	start := time.Now()
	now, next, err := w.store.nextDue(ctx)
	if ctx.Err() != nil {
		return Result{}, nil
	}
	if err != nil || next == nil || next.After(now) {
		return Result{}, err
	}
	p := pass{Worker: w}
	err = p.sendDue(ctx, *next, now)
	if ctx.Err() != nil {
		err = nil
	}
	if p.result != (Result{}) {
		fields := []any{
			"sent", p.result.Sent,
			"retried", p.result.Retried,
			"failed", p.result.Failed,
			"lost", p.result.Lost,
			"took", time.Since(start),
		}
		if p.lastError != nil {
			fields = append(fields, "last_error", p.lastError)
		}
		w.logger.InfoContext(ctx, "receipts pass", fields...)
	}
	return p.result, err
}

// Run repeats RunOnce until ctx is done: immediately while there are due jobs,
// otherwise when the next job is due, and at the latest after every. Errors are
// logged, not returned, because the database may become available again.
func (w *Worker) Run(ctx context.Context, every time.Duration) error {
	if every <= 0 {
		return fmt.Errorf("receipts: cannot poll every %s", every)
	}
	for ctx.Err() == nil {
		wait := every
		switch result, err := w.RunOnce(ctx); {
		case err != nil:
			w.logger.ErrorContext(ctx, "receipts pass failed", "error", err)
		case result != (Result{}):
			continue
		default:
			wait = w.untilNextDue(ctx, every)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
	return nil
}

// untilNextDue is how long Run may sleep, at most limit.
func (w *Worker) untilNextDue(ctx context.Context, limit time.Duration) time.Duration {
	now, next, err := w.store.nextDue(ctx)
	if err != nil || next == nil {
		return limit
	}
	return min(limit, max(next.Sub(now), minPause))
}
