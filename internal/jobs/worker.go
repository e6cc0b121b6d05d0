package jobs

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/internal/postgres"
)

const (
	// MaxAttempts of a job take about three days, so a weekend's outage loses nothing.
	MaxAttempts = 300

	maxBackoff   = 15 * time.Minute
	queryTimeout = 10 * time.Second // of one statement, with the wait for a connection
)

// Backoff returns 1s after the first attempt, then 2s, 4s, … up to 15 minutes, ±20%.
func Backoff(attempt int) time.Duration {
	delay := maxBackoff
	if attempt <= 10 { // 2^10 s is more than the cap
		delay = time.Second << (attempt - 1)
	}
	return delay*4/5 + rand.N(delay*2/5) //nolint:gosec // jitter needs no secrecy
}

// ErrPermanent means that a retry cannot succeed.
var ErrPermanent = errors.New("permanent failure")

// Worker works off the due jobs of a kind. Any number may run concurrently. All fields but Due are
// required.
type Worker struct {
	Pool   *pgxpool.Pool
	Logger *slog.Logger
	Kind   string // begins the messages of the log and the actions of audit records
	Done   string // the outcome of a success, such as sent

	// Due is a query of its own for the due jobs, or "". Its parameters are the time until which a job is
	// due, the time after which run_at was set by a clock that ran ahead, and the limit.
	Due string

	// Do holds no database connection during a call (R6, nothing held during a call).
	Do          func(context.Context, Job) error
	Timeout     time.Duration // of Do; a shutdown waits for it
	Concurrency int           // so that a slow job does not delay the others

	Detail  func(error) string              // returns what last_error keeps; addresses are removed
	Backoff func(attempt int) time.Duration // [Backoff], except in tests
}

// RunOnce tries every due job once. If ctx is cancelled, it finishes those in progress.
func (w *Worker) RunOnce(ctx context.Context) (Result, error) {
	start := time.Now()
	result := Result{}
	now, err := postgres.Now(ctx, w.Pool)
	if err == nil {
		err = w.runDue(ctx, now, result)
	}
	if len(result) > 0 {
		w.Logger.InfoContext(ctx, w.Kind+"s pass", w.Done, result[w.Done], Retried, result[Retried],
			Failed, result[Failed], Lost, result[Lost], "duration_seconds", time.Since(start).Seconds())
	}
	if ctx.Err() != nil {
		err = nil
	}
	return result, err
}

// Pass is RunOnce for a loop.
func (w *Worker) Pass(ctx context.Context) error {
	_, err := w.RunOnce(ctx)
	return err
}

const batchSize = 100

// Outcomes of an attempt, beside [Worker.Done].
const (
	Retried = "retried"
	Failed  = "failed" // an operator has to act
	Lost    = "lost"   // not recorded, so what was done is done again
)

// Result counts the attempts of one pass by outcome.
type Result map[string]int

func (w *Worker) runDue(ctx context.Context, until time.Time, result Result) error {
	for ctx.Err() == nil {
		batch, err := w.due(ctx, until)
		if err != nil {
			return err
		}
		outcomes := make([]string, len(batch))
		running, ctx := errgroup.WithContext(ctx)
		running.SetLimit(w.Concurrency)
		for i, j := range batch {
			running.Go(func() (err error) {
				outcomes[i], err = w.Run(ctx, j)
				return err
			})
		}
		err = running.Wait()
		outcomes = slices.DeleteFunc(outcomes, func(outcome string) bool { return outcome == "" })
		for _, outcome := range outcomes {
			result[outcome]++
		}
		all := w.Due == "" && len(batch) < batchSize // another query may limit the jobs of an account
		if err != nil || len(outcomes) == 0 || all {
			return err
		}
	}
	return nil
}

// Run claims a job and makes one attempt. The outcome is empty if another worker has the job, or if it
// is not due. The lease covers Do and two statements, and a stop does not interrupt it, because the job
// of a success must still be deleted.
func (w *Worker) Run(ctx context.Context, j Job) (outcome string, err error) {
	if ctx.Err() != nil {
		return "", nil
	}
	lease := w.Timeout + 2*queryTimeout
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease)
	defer cancel()
	claimed, err := w.claim(ctx, &j, lease)
	if err != nil || !claimed {
		return "", err
	}
	return w.record(ctx, j, w.try(ctx, j)), nil
}

func (w *Worker) try(ctx context.Context, j Job) error {
	if j.Attempt > MaxAttempts {
		return errors.New("no attempt ended")
	}
	ctx, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	return w.Do(ctx, j)
}

func (w *Worker) record(ctx context.Context, j Job, cause error) (outcome string) {
	log := w.Logger.With("account_id", j.AccountID, "job_id", j.ID, "order_id", j.OrderID, "attempt", j.Attempt)
	var held bool
	var err error
	switch {
	case cause == nil:
		outcome = w.Done
		held, err = w.delete(ctx, j)
	case errors.Is(cause, ErrPermanent) || j.Attempt >= MaxAttempts:
		outcome = Failed
		held, err = w.recordFailure(ctx, j, 0, w.Detail(cause), true)
	default:
		outcome = Retried
		held, err = w.recordFailure(ctx, j, w.Backoff(j.Attempt), w.Detail(cause), false)
	}
	switch {
	case err != nil || !held:
		log.WarnContext(ctx, w.Kind+" outcome not recorded", "outcome", outcome, "error", err)
		return Lost
	case outcome == Failed:
		log.ErrorContext(ctx, w.Kind+" marked as failed", "error", cause)
	case outcome == Retried:
		log.DebugContext(ctx, w.Kind+" failed", "error", cause)
	}
	return outcome
}
