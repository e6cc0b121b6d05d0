package idempotency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// maxBackoff is the longest pause between two attempts of the completer: long
// beside an outage, and short enough that a recovered provider is noticed the same
// day.
const maxBackoff = 6 * time.Hour

// pollingLimit is the age from which a key that clients keep running needs review. The
// completer gives up an idle key after about as long, with the default configuration.
const pollingLimit = 30 * time.Hour

// actionPollGraces is after how many graces the completer runs a key that requires an
// action: a quarter of an hour by default. Mostly a webhook or the client runs it
// earlier.
const actionPollGraces = 3

// Completer finishes the requests whose clients did not retry: it resumes
// abandoned keys on the path of a retry, from the stored parameters. It checks
// neither credentials nor validation rules. Any number of completers may run at
// once, beside any number of clients.
type Completer struct {
	engine *Engine
	find   func(operation string) (Operation, bool)
	config CompleterConfig
	logger *slog.Logger
}

// CompleterConfig bounds a [Completer]. All of it is needed.
type CompleterConfig struct {
	// Grace is how long after its last run an unfinished key counts as abandoned.
	// More than a lease (R9). It doubles with each failed attempt of the completer,
	// up to six hours.
	Grace time.Duration

	// MaxAttempts is how often the completer resumes a key before it marks it as
	// needing review by an operator (R16).
	MaxAttempts int

	// Limit bounds the keys of one pass, Concurrency those in progress at once.
	Limit, Concurrency int
}

// NewCompleter returns a completer. find returns the operation of a name.
func NewCompleter(engine *Engine, find func(operation string) (Operation, bool), config CompleterConfig) (*Completer, error) {
	switch {
	case engine == nil || find == nil:
		return nil, errors.New("idempotency: a completer needs an engine and its operations")
	case config.Grace <= engine.store.lockTimeout:
		return nil, fmt.Errorf("idempotency: the grace of %s must be more than the lease of %s (R9)", config.Grace, engine.store.lockTimeout)
	case config.MaxAttempts < 1 || config.Limit < 1 || config.Concurrency < 1:
		return nil, errors.New("idempotency: MaxAttempts, Limit and Concurrency must be positive")
	}
	return &Completer{engine: engine, find: find, config: config, logger: engine.logger}, nil
}

// CompleterResult counts what one pass of a [Completer] did. Every key that the
// pass tried to claim is in one of the counts, unless the claim failed.
type CompleterResult struct {
	Completed   int // finished now, whatever the response
	Skipped     int // taken or finished by another run since it was listed
	Waiting     int // require an action
	Failed      int // to be tried again
	NeedsReview int // marked for an operator
}

// RunOnce makes one pass over the keys that are due, the longest idle first, so
// that a key which fails is always listed after the others. When ctx is cancelled it
// finishes the keys in progress and starts no more. An error means that it could
// not list or claim keys: it stopped there, and the counts are right.
func (c *Completer) RunOnce(ctx context.Context) (CompleterResult, error) {
	keys, err := c.engine.store.abandoned(ctx, c.config.Grace, c.config.Limit)
	if err != nil {
		if ctx.Err() != nil {
			return CompleterResult{}, nil // cancelled
		}
		return CompleterResult{}, fmt.Errorf("list abandoned keys: %w", err)
	}
	var counts counter
	workers, running := errgroup.WithContext(ctx) // ends with ctx or with the first error
	workers.SetLimit(c.config.Concurrency)
	for _, key := range keys {
		workers.Go(func() error { // waits for a free worker
			if running.Err() != nil {
				return nil
			}
			return c.complete(ctx, key, &counts)
		})
	}
	if err = workers.Wait(); err == nil && ctx.Err() == nil {
		err = c.reviewPolled(ctx, &counts)
	}
	return counts.CompleterResult, err
}

// reviewPolled marks the old keys that clients run so often that they are never
// abandoned. Each of their runs was an attempt without a result.
func (c *Completer) reviewPolled(ctx context.Context, counts *counter) error {
	keys, err := c.engine.store.polled(ctx, c.config)
	if err != nil {
		return fmt.Errorf("list polled keys: %w", err)
	}
	for _, key := range keys {
		if err := c.markNeedsReview(ctx, key); err != nil {
			return fmt.Errorf("mark polled key: %w", err)
		}
		c.logger.ErrorContext(ctx, "polled key needs review, no run finishes it", "account_id", key.accountID, "key_id", key.id)
		counts.add(func(r *CompleterResult) { r.NeedsReview++ })
	}
	return nil
}

// complete claims one key, resumes it and counts the result.
func (c *Completer) complete(ctx context.Context, key abandonedKey, counts *counter) error {
	claimed, err := c.engine.store.claimAbandoned(ctx, key)
	switch {
	case errors.Is(err, ErrInProgress), err == nil && !claimed:
		counts.add(func(r *CompleterResult) { r.Skipped++ })
		return nil
	case err != nil && ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("claim abandoned key: %w", err)
	}
	result, err := c.resume(ctx, key)
	log := c.logger.With("account_id", key.accountID, "key_id", key.id, "attempt", result.Attempt, "recovery_point", result.To)
	switch {
	case err == nil && !result.Replayed:
		log.InfoContext(ctx, "abandoned key completed", "from", result.From, "response", result.Response.Status)
		counts.add(func(r *CompleterResult) { r.Completed++ })
	case err == nil, errors.Is(err, ErrInProgress):
		counts.add(func(r *CompleterResult) { r.Skipped++ })
	case errors.Is(err, ErrActionRequired):
		counts.add(func(r *CompleterResult) { r.Waiting++ })
	case key.attempts < c.config.MaxAttempts:
		log.WarnContext(ctx, "abandoned key not completed, it will be tried again", "error", err)
		counts.add(func(r *CompleterResult) { r.Failed++ })
	default:
		log.ErrorContext(ctx, "abandoned key needs review, no attempts are left", "completer_attempts", key.attempts, "error", err)
		if err := c.markNeedsReview(ctx, key); err != nil {
			log.ErrorContext(ctx, "abandoned key could not be marked for review, it will be tried again", "error", err)
		}
		counts.add(func(r *CompleterResult) { r.NeedsReview++ })
	}
	return nil
}

// errAttemptsUsed is the error of a key whose attempts are used up and that was
// not marked, because the process died during the last attempt.
var errAttemptsUsed = errors.New("no attempts are left, and the last one did not end")

// resume keeps a panic in one key's operation from the other keys.
func (c *Completer) resume(ctx context.Context, key abandonedKey) (result Result, err error) {
	if key.attempts > c.config.MaxAttempts {
		return Result{}, errAttemptsUsed
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return c.engine.Resume(ctx, key.accountID, key.id, c.find)
}

// markNeedsReview leaves the key to an operator (R16). Its recovery point stays:
// it is the only pointer to a possible charge.
func (c *Completer) markNeedsReview(ctx context.Context, key abandonedKey) error {
	return c.engine.store.exec(context.WithoutCancel(ctx), markNeedsReviewSQL, key.accountID, key.id)
}

// counter adds up the results of concurrent workers.
type counter struct {
	mu sync.Mutex
	CompleterResult
}

func (c *counter) add(change func(*CompleterResult)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.CompleterResult)
}
