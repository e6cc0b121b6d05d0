package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
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

// CompleterConfig configures a [Completer]. All fields are required and positive.
type CompleterConfig struct {
	// Grace is how long after its last run an unfinished key is abandoned. It doubles with each
	// failed attempt, up to six hours.
	Grace time.Duration

	// MaxAttempts is how often the completer resumes a key before it marks the key for review,
	// because an unfinished key may be the only pointer to a charge and is never deleted (R16,
	// unfinished keys stay).
	MaxAttempts int

	// ActionTimeout is the age at which an operation ends its wait for an action. A key runs
	// as soon as its lease would end after that age, and then once in each grace.
	ActionTimeout time.Duration

	Limit       int // of each kind of keys in one pass
	Concurrency int // keys in progress at once
}

// NewCompleter returns a completer that leaves the keys of other operations to a newer version.
func NewCompleter(engine *Engine, operations []Operation, config CompleterConfig) *Completer {
	return &Completer{engine: engine, operations: operations, steps: knownSteps(operations), config: config}
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
	keys, err := c.due(ctx)
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

// stepSQL names the step that continues a key, which must be one of knownSteps: no command
// changes the row of another step, counters included (R18, newer versions). With array_position,
// unlike = ANY, the planner expects that most keys match, so it reads an index in order up to
// the LIMIT. Its functions are immutable, because Citus requires it in an UPDATE.
const stepSQL = `get_byte(params_hash, 0)::text || '/' || operation || '/' || recovery_point`

func knownSteps(operations []Operation) (names []string) {
	for _, op := range operations {
		for point := range op.Steps(&Run{}).At {
			names = append(names, fmt.Sprintf("%d/%s/%s", fingerprintVersion, op.Name(), point))
		}
	}
	return names
}

// dueSQL lists the keys of all accounts that are due, of each account in turn, so that none
// delays another (R20, the account in every table: an exception). The inner LIMIT bounds the
// sort after a long outage.
func dueSQL(condition string) string {
	return `
WITH due AS (
    SELECT account_id, id, last_run_at, completer_attempt + (action_required_at IS NULL)::integer AS attempts
      FROM idempotency_keys
     WHERE finished_at IS NULL AND needs_review_at IS NULL
       AND ` + condition + `
       AND array_position($1::text[], ` + stepSQL + `) IS NOT NULL
     ORDER BY last_run_at
     LIMIT 100 * $2
)
SELECT account_id, id, last_run_at, attempts
  FROM due
 ORDER BY row_number() OVER (PARTITION BY account_id ORDER BY last_run_at), last_run_at
 LIMIT $2`
}

// abandonedSQL lists the keys whose grace is over. The first condition on last_run_at is for the
// index, the second is the backoff: it doubles with each attempt, up to $5. 20 doublings fit
// an interval.
var abandonedSQL = dueSQL(`action_required_at IS NULL
       AND last_run_at NOT BETWEEN now() - $4::interval AND now() + $3::interval
       AND last_run_at NOT BETWEEN
           now() - least($4::interval * 2 ^ least(completer_attempt, 20), greatest($5::interval, $4::interval))
           AND now() + $3::interval
       AND (locked_at IS NULL OR locked_at NOT BETWEEN now() - $3::interval AND now() + $3::interval)`)

// actionRequiredSQL lists the keys that have waited $4 since their last run. A run ends the
// wait when they are $5 old: they are due at once, and then after each $6.
var actionRequiredSQL = dueSQL(`action_required_at IS NOT NULL
       AND (
            last_run_at NOT BETWEEN now() - $4::interval AND now() + $3::interval
            OR (
                created_at <= now() - $5::interval
                AND last_run_at <= greatest(created_at + $5::interval, now() - $6::interval)
            )
       )`)

// due returns the keys of both kinds in turn.
func (c *Completer) due(ctx context.Context) ([]candidate, error) {
	store, toCandidate := c.engine.store, pgx.RowToStructByPos[candidate]
	abandoned, err := collect(ctx, store, toCandidate, abandonedSQL, c.steps, c.config.Limit, store.lockTimeout, c.config.Grace, maxBackoff)
	if err != nil {
		return nil, err
	}
	timeout := c.config.ActionTimeout - store.lockTimeout // the lease of a run that still waits ends before it
	waiting, err := collect(ctx, store, toCandidate, actionRequiredSQL,
		c.steps, c.config.Limit, store.lockTimeout, actionPollGraces*c.config.Grace, timeout, c.config.Grace)
	return inTurn(abandoned, waiting), err
}

func inTurn(a, b []candidate) (all []candidate) {
	for len(a) > 0 && len(b) > 0 {
		all = append(all, a[0], b[0])
		a, b = a[1:], b[1:]
	}
	return append(append(all, a...), b...)
}

// claimAbandonedSQL counts an attempt of the completer and starts its backoff, unless the
// key has changed since it was listed. It takes no lease. Completers do not exclude each other
// by a lock, because Citus has none across shards (R16, unfinished keys stay).
const claimAbandonedSQL = `
UPDATE idempotency_keys
   SET completer_attempt = completer_attempt + (action_required_at IS NULL)::integer,
       last_run_at       = now()
 WHERE account_id = $1 AND id = $2
   AND finished_at IS NULL AND needs_review_at IS NULL
   AND last_run_at = $3
   AND (locked_at IS NULL OR locked_at NOT BETWEEN now() - $4::interval AND now() + $4::interval)
   AND array_position($5::text[], ` + stepSQL + `) IS NOT NULL`

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
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	return c.engine.Resume(ctx, key.AccountID, key.ID, c.operations)
}

// polledSQL lists the old keys that ran within the grace and far more often than the
// completer would run them.
const polledSQL = `
SELECT account_id, id, last_run_at, 0
  FROM idempotency_keys
 WHERE finished_at IS NULL AND needs_review_at IS NULL AND action_required_at IS NULL
   AND last_run_at > now() - $1::interval
   AND created_at NOT BETWEEN now() - $2::interval AND now() + $3::interval
   AND attempt > 2 * $4::bigint
   AND array_position($5::text[], ` + stepSQL + `) IS NOT NULL
 LIMIT $6`

// reviewPolled marks old keys that clients run so often that they are never abandoned.
func (c *Completer) reviewPolled(ctx context.Context, total *CompleterResult) error {
	store := c.engine.store
	keys, err := collect(ctx, store, pgx.RowToStructByPos[candidate], polledSQL,
		c.config.Grace, pollingLimit, store.lockTimeout, c.config.MaxAttempts, c.steps, c.config.Limit)
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

const markNeedsReviewSQL = `
UPDATE idempotency_keys
   SET needs_review_at = now()
 WHERE account_id = $1 AND id = $2
   AND finished_at IS NULL AND needs_review_at IS NULL
   AND array_position($3::text[], ` + stepSQL + `) IS NOT NULL`

func (c *Completer) markNeedsReview(ctx context.Context, key candidate) error {
	_, err := c.engine.store.exec(context.WithoutCancel(ctx), markNeedsReviewSQL, key.AccountID, key.ID, c.steps)
	return err
}

const requeueSQL = `
UPDATE idempotency_keys
   SET needs_review_at   = NULL,
       completer_attempt = 0
 WHERE account_id = $1 AND id = $2
   AND finished_at IS NULL
   AND array_position($3::text[], ` + stepSQL + `) IS NOT NULL`

// Requeue returns a key that needs review to the completer, with all attempts, if one of the
// operations can continue it (R18, newer versions).
func (e *Engine) Requeue(ctx context.Context, accountID, id uuid.UUID, operations []Operation) error {
	_, err := e.store.exec(ctx, requeueSQL, accountID, id, knownSteps(operations))
	return err
}
