package idempotency

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const maxBackoff = 6 * time.Hour

// pollingLimit is the age at which an unfinished key that clients keep running needs
// review, about as old as an idle key that the completer gives up.
const pollingLimit = 30 * time.Hour

// actionPollGraces is after how many graces a key that requires an action runs, until its
// ActionTimeout. Usually a webhook or the client runs it earlier.
const actionPollGraces = 3

// Completer resumes abandoned keys, whose clients did not retry. Any number of
// completers may run at once.
type Completer struct {
	engine     *Engine
	operations []Operation
	steps      []string // of the operations, see knownSteps
	config     CompleterConfig
}

// CompleterConfig configures a [Completer]. All fields are required.
type CompleterConfig struct {
	// Grace is how long after its last run an unfinished key is abandoned: longer
	// than a lease (R9). It doubles with each failed attempt, up to six hours.
	Grace time.Duration

	// MaxAttempts is how often the completer resumes a key before the key needs
	// review by an operator (R16).
	MaxAttempts int

	// ActionTimeout is the age at which an operation ends its wait for an action, see
	// [ErrActionRequired]. A key runs as soon as its lease would end after that age, and
	// then once in each grace.
	ActionTimeout time.Duration

	// Limit bounds the abandoned keys of one pass, and those that require an action.
	// Concurrency bounds the keys in progress at once.
	Limit, Concurrency int
}

// NewCompleter returns a completer that resumes the keys of operations. It leaves keys
// of other operations, and at unknown recovery points, to a newer version (R18).
func NewCompleter(engine *Engine, operations []Operation, config CompleterConfig) (*Completer, error) {
	switch {
	case config.Grace <= engine.store.lockTimeout:
		return nil, fmt.Errorf("idempotency: the grace of %s must be more than the lease of %s (R9)", config.Grace, engine.store.lockTimeout)
	case config.ActionTimeout <= engine.store.lockTimeout:
		return nil, fmt.Errorf("idempotency: the action timeout of %s must be more than the lease of %s (R9)", config.ActionTimeout, engine.store.lockTimeout)
	case config.MaxAttempts < 1 || config.Limit < 1 || config.Concurrency < 1:
		return nil, errors.New("idempotency: MaxAttempts, Limit and Concurrency must be positive")
	}
	return &Completer{engine: engine, operations: operations, steps: knownSteps(operations), config: config}, nil
}

// CompleterResult counts the keys of one pass by result.
type CompleterResult struct {
	Completed   int // finished by this pass, with any response
	Skipped     int // another run took or finished them since they were listed
	Waiting     int // require an action first
	Failed      int // will be tried again
	NeedsReview int // marked for review by an operator
}

// RunOnce makes one pass over the keys that are due: of each account in turn, the longest
// idle first, so that a failing key comes last. When ctx ends, it finishes the keys in progress and
// starts no more. The counts are right beside an error, too.
func (c *Completer) RunOnce(ctx context.Context) (CompleterResult, error) {
	keys, err := c.engine.store.abandoned(ctx, c.config, c.steps)
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

// reviewPolled marks old keys that clients run so often that they are never
// abandoned.
func (c *Completer) reviewPolled(ctx context.Context, counts *counter) error {
	store := c.engine.store
	keys, err := store.candidates(ctx, polledSQL, c.config.Grace, pollingLimit, store.lockTimeout, c.config.MaxAttempts, c.steps, c.config.Limit)
	if err != nil {
		return fmt.Errorf("list polled keys: %w", err)
	}
	for _, key := range keys {
		if err := c.markNeedsReview(ctx, key); err != nil {
			return fmt.Errorf("mark polled key: %w", err)
		}
		c.engine.logger.ErrorContext(ctx, "polled key needs review, no run finishes it", "account_id", key.AccountID, "key_id", key.ID)
		counts.add(&counts.NeedsReview)
	}
	return nil
}

func (c *Completer) complete(ctx context.Context, key candidate, counts *counter) error {
	claimed, err := c.engine.store.claimAbandoned(ctx, key, c.steps)
	switch {
	case errors.Is(err, ErrInProgress), err == nil && !claimed:
		counts.add(&counts.Skipped)
		return nil
	case err != nil && ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("claim abandoned key: %w", err)
	}
	result, err := c.resume(ctx, key)
	log := c.engine.logger.With("account_id", key.AccountID, "key_id", key.ID, "attempt", result.Attempt, "recovery_point", result.To)
	switch {
	case err == nil && !result.Replayed:
		log.InfoContext(ctx, "abandoned key completed", "from", result.From, "response", result.Response.Status)
		counts.add(&counts.Completed)
	case err == nil, errors.Is(err, ErrInProgress):
		counts.add(&counts.Skipped)
	case errors.Is(err, ErrActionRequired):
		counts.add(&counts.Waiting)
	case key.Attempts < c.config.MaxAttempts:
		log.WarnContext(ctx, "abandoned key not completed, it will be tried again", "error", err)
		counts.add(&counts.Failed)
	default:
		log.ErrorContext(ctx, "abandoned key needs review, no attempts are left", "completer_attempts", key.Attempts, "error", err)
		if err := c.markNeedsReview(ctx, key); err != nil {
			log.ErrorContext(ctx, "abandoned key could not be marked for review, it will be tried again", "error", err)
		}
		counts.add(&counts.NeedsReview)
	}
	return nil
}

// errAttemptsUsed is the error of a key whose last attempt ended the process.
var errAttemptsUsed = errors.New("no attempts are left, and the last one did not end")

// resume keeps a panic in one key's operation from the other keys.
func (c *Completer) resume(ctx context.Context, key candidate) (result Result, err error) {
	if key.Attempts > c.config.MaxAttempts {
		return Result{}, errAttemptsUsed
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return c.engine.Resume(ctx, key.AccountID, key.ID, c.operations)
}

func (c *Completer) markNeedsReview(ctx context.Context, key candidate) error {
	return c.engine.store.exec(context.WithoutCancel(ctx), markNeedsReviewSQL, key.AccountID, key.ID, c.steps)
}

type counter struct {
	mu sync.Mutex
	CompleterResult
}

func (c *counter) add(count *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*count++
}
