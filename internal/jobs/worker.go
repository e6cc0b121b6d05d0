package jobs

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
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

// ErrMisconfigured means that the worker cannot do any job of its kind until an operator changes its configuration, such
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

	// Do holds no database connection during a call (R6, nothing held during a call).
	Do          func(context.Context, Job) error
	Timeout     time.Duration // of Do; a shutdown waits for it
	Concurrency int           // so that a slow job does not delay the others

	Detail func(error) string // returns what last_error keeps; addresses are removed
}

// RunOnce tries every due job once. If ctx is cancelled, it finishes those in progress.
func (w *Worker) RunOnce(ctx context.Context) (Result, error) {
	l := w.Loop()
	err := l.Pass(ctx)
	l.Wait()
	return l.result, err
}

// Drain tries each pending job now, also one that waits for its next attempt, and waits for those that other workers
// run. It returns the jobs that are left of those that were staged before it began: their attempt has just failed, or
// they have failed for good. It is an error if the worker is misconfigured.
func (w *Worker) Drain(ctx context.Context) (left []Job, err error) {
	began, err := w.now(ctx)
	if err == nil {
		_, err = w.Pool.Exec(ctx, "UPDATE staged_jobs SET run_at = now() WHERE kind = $1 AND failed_at IS NULL AND last_error IS NOT NULL", w.Kind)
	}
	if err != nil {
		return nil, postgres.Translate(err)
	}
	for {
		result, err := w.RunOnce(ctx)
		if err == nil && result[Misconfigured] > 0 {
			err = ErrMisconfigured
		}
		if err != nil {
			return nil, err
		}
		left, err = w.left(ctx, began)
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

// Outcomes of an attempt.
const (
	Done    = "done"
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

// Pass starts the jobs that were due when it began, so a job that fails meanwhile waits for the next pass. During the
// pause after an [ErrMisconfigured], it starts none. A loop makes one pass at a time.
func (l *Loop) Pass(ctx context.Context) error {
	now, err := l.now(ctx)
	for err == nil && ctx.Err() == nil {
		select {
		case l.slots <- struct{}{}: // a slot is free
			<-l.slots
		case <-ctx.Done():
			continue
		}
		free := cap(l.slots) - len(l.slots) // no more are claimed than can run at once, because a claim begins the lease
		var due []Job
		if !l.paused() {
			due, err = l.claim(ctx, now, free)
		}
		for _, j := range due {
			l.slots <- struct{}{}
			l.running.Go(func() {
				l.count(l.run(ctx, j))
				<-l.slots
			})
		}
		if len(due) < free {
			return err
		}
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // a stop is no failure
	}
	return err
}

// Wait waits for the jobs that run.
func (l *Loop) Wait() { l.running.Wait() }

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
	if j.Attempt > MaxAttempts {
		return w.record(ctx, j, errors.New("no attempt ended"))
	}
	attempt, done := context.WithTimeout(ctx, w.Timeout)
	defer done()
	return w.record(ctx, j, w.Do(attempt, j))
}

func (w *Worker) record(ctx context.Context, j Job, cause error) (outcome string) {
	log := w.Logger.With("account_id", j.AccountID, "job_id", j.ID, "args", string(j.Args), "attempt", j.Attempt)
	level, delay := slog.LevelError, time.Duration(0)
	switch {
	case cause == nil:
		outcome, level = Done, slog.LevelInfo
	case errors.Is(cause, ErrMisconfigured):
		outcome, delay = Misconfigured, misconfiguredPause
	case errors.Is(cause, ErrPermanent) || j.Attempt >= MaxAttempts:
		outcome = Failed
	default:
		later, _ := errors.AsType[LaterError](cause)
		outcome, level, delay = Retried, slog.LevelDebug, max(Backoff(j.Attempt), min(later.Pause, maxBackoff))
	}
	if cause != nil {
		log = log.With("error", cause)
	}
	store := func() (held bool, err error) {
		if cause == nil {
			return w.delete(ctx, j)
		}
		return w.recordFailure(ctx, j, delay, cause, outcome)
	}
	held, err := store()
	if err != nil { // for example, the connection broke, and the job would be done again after the lease
		held, err = store()
	}
	if err != nil || !held {
		log.WarnContext(ctx, w.Kind+" outcome not recorded", "outcome", outcome, "record_error", err)
		return Lost
	}
	log.Log(ctx, level, w.Kind+" "+outcome)
	return outcome
}
