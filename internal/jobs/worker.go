package jobs

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// MaxAttempts of a job take about three days, so a weekend's outage loses nothing.
	MaxAttempts = 300

	maxBackoff         = 15 * time.Minute
	misconfiguredPause = time.Minute
	queryTimeout       = 10 * time.Second // of one statement, with the wait for a connection
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

// ErrMisconfigured means that the worker cannot do any job of its kind until somebody changes its configuration, such
// as rejected credentials. It ends the pass, and counts as no attempt.
var ErrMisconfigured = errors.New("misconfigured")

// LaterError is the error of a server that asks for a pause, of which at most 15 minutes are granted, so
// that a job still fails after three days.
type LaterError struct {
	Err   error
	Pause time.Duration
}

func (e LaterError) Error() string { return e.Err.Error() }

// Worker works off the due jobs of a kind. Any number may run concurrently. All fields are
// required.
type Worker struct {
	Pool   *pgxpool.Pool
	Logger *slog.Logger
	Kind   string // begins the messages of the log and the actions of audit records
	Done   string // the outcome of a success, such as sent

	// Do holds no database connection during a call (R6, nothing held during a call).
	Do          func(context.Context, Job) error
	Timeout     time.Duration // of Do; a shutdown waits for it
	Concurrency int           // so that a slow job does not delay the others

	Detail  func(error) string              // returns what last_error keeps; addresses are removed
	Backoff func(attempt int) time.Duration // [Backoff], except in tests
}

// RunOnce tries every due job once. If ctx is cancelled, it finishes those in progress.
func (w *Worker) RunOnce(ctx context.Context) (Result, error) {
	l := w.Loop()
	now, err := w.now(ctx)
	if err == nil {
		err = l.start(ctx, &now) // so a job that has failed is not due again in this pass
	}
	l.Wait()
	if ctx.Err() != nil {
		err = nil
	}
	return l.result, err
}

// Drain works off the jobs that are due, and waits for those that other workers run. It returns the jobs among these
// that are left, because their latest attempt has failed.
func (w *Worker) Drain(ctx context.Context, accountIDs, ids []uuid.UUID) (left []Job, err error) {
	for {
		result, err := w.RunOnce(ctx)
		if err == nil && result[Misconfigured] > 0 {
			err = ErrMisconfigured
		}
		if err != nil {
			return nil, err
		}
		left, err = w.left(ctx, accountIDs, ids)
		if err != nil || !slices.ContainsFunc(left, func(j Job) bool { return j.LastError == "" }) {
			return left, err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Outcomes of an attempt, beside [Worker.Done].
const (
	Retried = "retried"
	Failed  = "failed" // an operator has to act
	Lost    = "lost"   // not recorded, so what was done is done again

	Misconfigured = "misconfigured" // the pass ends
)

// Result counts attempts by outcome.
type Result map[string]int

// Loop runs the due jobs of a worker in repeated passes. A pass does not wait for the jobs that it has
// started, so a slow job delays no other.
type Loop struct {
	*Worker

	slots   chan struct{} // has an element for each job that runs
	running sync.WaitGroup
	mu      sync.Mutex
	result  Result
	pause   time.Time // until then, after [ErrMisconfigured]
}

// Loop returns a loop.
func (w *Worker) Loop() *Loop {
	return &Loop{Worker: w, slots: make(chan struct{}, w.Concurrency), result: Result{}}
}

// Pass starts the due jobs, unless it is a pause after [ErrMisconfigured].
func (l *Loop) Pass(ctx context.Context) error {
	if l.paused() {
		return nil
	}
	_, err := l.now(ctx)
	if err == nil {
		err = l.start(ctx, nil)
	}
	return err
}

// Wait waits for the jobs that run.
func (l *Loop) Wait() { l.running.Wait() }

// start starts the jobs that were due at a time, or that are due now. It claims only as many as can run at
// once, because a claim begins the lease.
func (l *Loop) start(ctx context.Context, until *time.Time) error {
	for {
		free := l.reserve(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // a stop is no failure
		}
		var claimed []Job
		var err error
		if !l.paused() {
			claimed, err = l.claim(ctx, free, until)
		}
		for range free - len(claimed) {
			<-l.slots
		}
		for _, j := range claimed {
			l.running.Go(func() {
				l.count(l.run(ctx, j))
				<-l.slots
			})
		}
		if err != nil || len(claimed) < free {
			return err
		}
	}
}

// reserve waits until a job may run, and returns how many may.
func (l *Loop) reserve(ctx context.Context) (free int) {
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return 0
	}
	for free = 1; free < cap(l.slots); free++ {
		select {
		case l.slots <- struct{}{}:
		default:
			return free
		}
	}
	return free
}

func (l *Loop) count(outcome string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.result[outcome]++; outcome == Misconfigured {
		l.pause = time.Now().Add(misconfiguredPause)
	}
}

func (l *Loop) paused() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.pause)
}

// lease covers Do and two statements.
func (w *Worker) lease() time.Duration { return w.Timeout + 2*queryTimeout }

// run makes an attempt. A stop does not interrupt it, because the job of a success must still be deleted.
func (w *Worker) run(ctx context.Context, j Job) (outcome string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.lease())
	defer cancel()
	return w.record(ctx, j, w.try(ctx, j))
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
	log := w.Logger.With("account_id", j.AccountID, "job_id", j.ID, "args", string(j.Args), "attempt", j.Attempt)
	var held bool
	var err error
	later, _ := errors.AsType[LaterError](cause)
	switch {
	case cause == nil:
		outcome = w.Done
		held, err = w.delete(ctx, j)
	case errors.Is(cause, ErrMisconfigured):
		outcome = Misconfigured
		held, err = w.recordFailure(ctx, j, misconfiguredPause, cause, outcome)
	case errors.Is(cause, ErrPermanent) || j.Attempt >= MaxAttempts:
		outcome = Failed
		held, err = w.recordFailure(ctx, j, 0, cause, outcome)
	default:
		outcome = Retried
		held, err = w.recordFailure(ctx, j, max(w.Backoff(j.Attempt), min(later.Pause, maxBackoff)), cause, outcome)
	}
	switch {
	case err != nil || !held:
		log.WarnContext(ctx, w.Kind+" outcome not recorded", "outcome", outcome, "error", err)
		return Lost
	case outcome == Failed:
		log.ErrorContext(ctx, w.Kind+" marked as failed", "error", cause)
	case outcome == Misconfigured:
		log.ErrorContext(ctx, w.Kind+" needs another configuration", "error", cause)
	case outcome == Retried:
		log.DebugContext(ctx, w.Kind+" failed", "error", cause)
	default:
		log.InfoContext(ctx, w.Kind+" "+outcome)
	}
	return outcome
}
