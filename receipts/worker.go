package receipts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

const (
	// queryTimeout bounds one statement of an attempt, waiting for a connection
	// included. It is the statement_timeout of R21.
	queryTimeout = 10 * time.Second

	// minPause keeps Run from spinning while somebody's lock hides a due job.
	minPause = 100 * time.Millisecond
)

// Worker drains the receipt jobs. Any number of workers may run at once.
type Worker struct {
	store    store
	mailer   Mailer
	renderer *renderer
	config   Config
	logger   *slog.Logger
}

// NewWorker returns a Worker that reads jobs through pool and sends with mailer.
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

// ReadStats counts the jobs, for metrics and operators. It needs no worker.
func ReadStats(ctx context.Context, pool *pgxpool.Pool) (Stats, error) { return store{pool}.stats(ctx) }

// RunOnce makes one pass: every job that is due when it starts is tried once,
// and one that fails never keeps it from the others. When ctx is cancelled no
// more jobs are taken, those in hand are finished within SendTimeout, and
// RunOnce returns without an error. An error means that the database failed
// while looking for jobs; what was done until then is counted.
func (w *Worker) RunOnce(ctx context.Context) (Result, error) {
	start := time.Now()
	now, first, waiting, err := w.store.schedule(ctx)
	if ctx.Err() != nil {
		return Result{}, nil
	}
	if err != nil || !waiting || first.After(now) {
		return Result{}, err
	}
	var (
		pass  tally
		lanes errgroup.Group
	)
	for range w.config.Concurrency {
		lanes.Go(func() error { return w.drain(ctx, now, &pass) })
	}
	err = lanes.Wait()
	if pass.result != (Result{}) {
		fields := []any{
			"sent", pass.result.Sent,
			"retried", pass.result.Retried,
			"dead", pass.result.Dead,
			"unsettled", pass.result.Unsettled,
			"took", time.Since(start),
		}
		if pass.lastError != nil {
			fields = append(fields, "last_error", pass.lastError)
		}
		w.logger.InfoContext(ctx, "receipts pass", fields...)
	}
	return pass.result, err
}

// Run repeats RunOnce until ctx is done: at once while there is work, else when
// the next job is due, at the latest after every. Errors are logged, not
// returned: a database that is away comes back.
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
			wait = w.pause(ctx, every)
		}
		pause := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			pause.Stop()
		case <-pause.C:
		}
	}
	return nil
}

// pause is how long Run may sleep.
func (w *Worker) pause(ctx context.Context, every time.Duration) time.Duration {
	now, first, waiting, err := w.store.schedule(ctx)
	if err != nil || !waiting {
		return every
	}
	return min(every, max(first.Sub(now), minPause))
}

// drain takes jobs one by one until none is left that was due at the moment
// given. A lane never holds more than it is working on, so a slow mail delays no
// other, a lease covers one mail, and a stop has nothing to give back.
func (w *Worker) drain(ctx context.Context, due time.Time, pass *tally) error {
	for ctx.Err() == nil {
		j, err := w.take(ctx, due)
		if errors.Is(err, errNothingDue) {
			return nil
		}
		if err != nil {
			return err
		}
		begun := time.Now()
		outcome, cause := w.attempt(ctx, j)
		pass.add(outcome, cause)
		if w.config.Observe != nil {
			w.config.Observe(outcome.String(), time.Since(begun))
		}
	}
	return nil
}

// take leases a job for as long as an attempt can last: reading the order,
// sending, and the statements around them.
func (w *Worker) take(ctx context.Context, due time.Time) (job, error) {
	ctx, cancel := detached(ctx, queryTimeout)
	defer cancel()
	return w.store.take(ctx, due, w.config.SendTimeout+3*queryTimeout)
}

// attempt sends one receipt and writes down what became of it.
func (w *Worker) attempt(ctx context.Context, j job) (outcome, error) {
	cause := w.send(ctx, j)
	log := w.logger.With("account_id", j.accountID, "job_id", j.id, "order_id", j.orderID, "attempt", j.attempt)

	result, held, err := w.settle(ctx, j, cause)
	switch {
	case err != nil || !held:
		log.WarnContext(ctx, "receipt's outcome not recorded", "outcome", result.String(), "error", err)
		return unsettled, cause
	case result == dead:
		log.ErrorContext(ctx, "receipt given up", "error", cause)
	case result == retried:
		log.DebugContext(ctx, "receipt failed", "error", cause)
	}
	return result, cause
}

// settle deletes the job, puts it off or buries it. held is false when the
// lease had run out and another worker has the job.
func (w *Worker) settle(ctx context.Context, j job, cause error) (result outcome, held bool, err error) {
	ctx, cancel := detached(ctx, queryTimeout)
	defer cancel()
	switch {
	case cause == nil:
		held, err = w.store.remove(ctx, j)
		return sent, held, err
	case errors.Is(cause, ErrPermanent) || j.attempt >= w.config.MaxAttempts:
		held, err = w.store.bury(ctx, j, cause)
		return dead, held, err
	default:
		held, err = w.store.retry(ctx, j, w.config.Backoff(j.attempt), cause)
		return retried, held, err
	}
}

// send reads, renders and sends. It holds no connection while it talks (R6).
func (w *Worker) send(ctx context.Context, j job) error {
	if j.attempt > w.config.MaxAttempts {
		return errors.New("receipts: no attempt ever came to an end")
	}
	orderID, err := uuid.Parse(j.orderID)
	if err != nil {
		return fmt.Errorf("%w: the job names no order", ErrPermanent)
	}
	o, err := w.order(ctx, j.accountID, orderID)
	if err != nil {
		return err
	}
	message, err := w.renderer.message(o)
	if err != nil {
		return err
	}
	ctx, cancel := detached(ctx, w.config.SendTimeout)
	defer cancel()
	return w.mailer.Send(ctx, message)
}

func (w *Worker) order(ctx context.Context, accountID, orderID uuid.UUID) (order, error) {
	ctx, cancel := detached(ctx, queryTimeout)
	defer cancel()
	return w.store.order(ctx, accountID, orderID)
}

// detached bounds a step that a stop must not cut short: a mail that was
// accepted while the worker is told to stop still gets its job deleted.
func detached(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), timeout)
}
