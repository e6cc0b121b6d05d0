package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

const (
	maxBackoff = 6 * time.Hour

	// pollingLimit is the age at which a key that clients keep running needs review.
	pollingLimit = 30 * time.Hour

	actionPollGraces = 3 // for a key that requires an action, which a webhook usually runs earlier
)

// Completer resumes abandoned keys, whose clients did not retry.
type Completer struct {
	engine     *Engine
	operations []Operation
	steps      []string // see knownSteps
	config     CompleterConfig
}

// CompleterConfig configures a [Completer]. All fields are required.
type CompleterConfig struct {
	// Grace is how long after its last run an unfinished key is abandoned. It doubles with each
	// failed attempt, up to six hours.
	Grace time.Duration

	MaxAttempts int // after which a key needs review by an operator (R16)

	// ActionTimeout is the age at which an operation ends its wait for an action. A key runs
	// as soon as its lease would end after that age, and then once in each grace.
	ActionTimeout time.Duration

	Limit       int // of each kind of keys in one pass
	Concurrency int // keys in progress at once
}

// NewCompleter returns a completer that leaves the keys of other operations to a newer
// version (R18). Shorter durations would resume keys in progress (R9).
func NewCompleter(engine *Engine, operations []Operation, config CompleterConfig) (*Completer, error) {
	lease := engine.config.LockTimeout
	switch {
	case config.Grace <= lease:
		return nil, fmt.Errorf("idempotency: the grace of %s must be more than the lease of %s", config.Grace, lease)
	case config.ActionTimeout <= lease:
		return nil, fmt.Errorf("idempotency: the action timeout of %s must be more than the lease of %s", config.ActionTimeout, lease)
	case config.MaxAttempts < 1 || config.Limit < 1 || config.Concurrency < 1:
		return nil, errors.New("idempotency: MaxAttempts, Limit and Concurrency must be positive")
	}
	return &Completer{engine: engine, operations: operations, steps: knownSteps(operations), config: config}, nil
}

// CompleterResult counts the keys of one pass by result.
type CompleterResult struct {
	Completed   int // with any response
	Skipped     int // another run was faster
	Failed      int // will be tried again
	NeedsReview int

	ActionRequired int // wait for an action
}

// RunOnce makes one pass over the keys that are due. When ctx ends, it finishes those in
// progress.
func (c *Completer) RunOnce(ctx context.Context) (total CompleterResult, err error) {
	keys, err := c.engine.store.abandoned(ctx, c.config, c.steps)
	switch {
	case err != nil && ctx.Err() != nil:
		return total, nil // cancelled
	case err != nil:
		return total, fmt.Errorf("list abandoned keys: %w", err)
	}
	results := make([]CompleterResult, len(keys))
	workers, running := errgroup.WithContext(ctx) // ends with ctx or with the first error
	workers.SetLimit(c.config.Concurrency)
	for i, key := range keys {
		workers.Go(func() (err error) { // waits for a free worker
			if running.Err() == nil {
				results[i], err = c.complete(ctx, key)
			}
			return err
		})
	}
	err = workers.Wait()
	for _, result := range results {
		total.Completed += result.Completed
		total.Skipped += result.Skipped
		total.ActionRequired += result.ActionRequired
		total.Failed += result.Failed
		total.NeedsReview += result.NeedsReview
	}
	if err == nil && ctx.Err() == nil {
		err = c.reviewPolled(ctx, &total)
	}
	return total, err
}

// reviewPolled marks old keys that clients run so often that they are never abandoned.
func (c *Completer) reviewPolled(ctx context.Context, total *CompleterResult) error {
	store := c.engine.store
	keys, err := collect(ctx, store, pgx.RowToStructByPos[candidate], polledSQL, c.config.Grace, pollingLimit, store.lockTimeout, c.config.MaxAttempts, c.steps, c.config.Limit)
	if err != nil {
		return fmt.Errorf("list polled keys: %w", err)
	}
	for _, key := range keys {
		if err := c.markNeedsReview(ctx, key); err != nil {
			return fmt.Errorf("mark polled key: %w", err)
		}
		c.engine.config.Logger.ErrorContext(ctx, "polled key needs review, no run finishes it", "account_id", key.AccountID, "key_id", key.ID)
		total.NeedsReview++
	}
	return nil
}

func (c *Completer) complete(ctx context.Context, key candidate) (CompleterResult, error) {
	store := c.engine.store
	claimed, err := store.exec(ctx, claimAbandonedSQL, key.AccountID, key.ID, key.At, store.lockTimeout, c.steps)
	switch {
	case errors.Is(err, ErrInProgress), err == nil && !claimed:
		return CompleterResult{Skipped: 1}, nil
	case err != nil && ctx.Err() != nil:
		return CompleterResult{}, nil
	case err != nil:
		return CompleterResult{}, fmt.Errorf("claim abandoned key: %w", err)
	}
	result, err := c.resume(ctx, key)
	log := c.engine.config.Logger.With("account_id", key.AccountID, "key_id", key.ID, "attempt", result.Attempt, "recovery_point", result.To)
	switch {
	case err == nil && !result.Replayed:
		log.InfoContext(ctx, "abandoned key completed", "from", result.From, "response", result.Response.Status)
		return CompleterResult{Completed: 1}, nil
	case err == nil, errors.Is(err, ErrInProgress):
		return CompleterResult{Skipped: 1}, nil
	case errors.Is(err, ErrActionRequired):
		return CompleterResult{ActionRequired: 1}, nil
	case key.Attempts < c.config.MaxAttempts:
		log.WarnContext(ctx, "abandoned key not completed, it will be tried again", "error", err)
		return CompleterResult{Failed: 1}, nil
	}
	log.ErrorContext(ctx, "abandoned key needs review, no attempts are left", "completer_attempts", key.Attempts, "error", err)
	if err := c.markNeedsReview(ctx, key); err != nil {
		log.ErrorContext(ctx, "abandoned key could not be marked for review, it will be tried again", "error", err)
	}
	return CompleterResult{NeedsReview: 1}, nil
}

// resume keeps a panic in one key's operation from the other keys.
func (c *Completer) resume(ctx context.Context, key candidate) (result Result, err error) {
	if key.Attempts > c.config.MaxAttempts {
		return Result{}, errors.New("no attempts are left, and the last one did not end")
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return c.engine.Resume(ctx, key.AccountID, key.ID, c.operations)
}

func (c *Completer) markNeedsReview(ctx context.Context, key candidate) error {
	_, err := c.engine.store.exec(context.WithoutCancel(ctx), markNeedsReviewSQL, key.AccountID, key.ID, c.steps)
	return err
}
