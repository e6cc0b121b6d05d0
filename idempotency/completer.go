package idempotency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

const (
	maxBackoff = 6 * time.Hour

	// pollingLimit is the age at which a key that clients keep running needs review.
	pollingLimit = 30 * time.Hour

	// actionPollGraces is after how many graces the completer runs a key that requires an action.
	// Usually the provider's webhook has run it earlier.
	actionPollGraces = 3
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

	Limit       int // of keys in one pass
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

func (r *CompleterResult) add(other CompleterResult) {
	r.Completed += other.Completed
	r.Skipped += other.Skipped
	r.Failed += other.Failed
	r.NeedsReview += other.NeedsReview
	r.ActionRequired += other.ActionRequired
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
	var mu sync.Mutex
	workers, running := errgroup.WithContext(ctx) // ends with ctx or with the first error
	workers.SetLimit(c.config.Concurrency)
	for _, key := range keys {
		workers.Go(func() error { // waits for a free worker
			if running.Err() != nil {
				return nil
			}
			counted, err := c.complete(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			total.add(counted)
			return err
		})
	}
	err = workers.Wait()
	return total, err
}

// stepSQL names the step that continues a key. Commands change a row, even its counters, only if the
// step is one of knownSteps (R18, newer versions). They compare it with array_position, because the
// planner then expects that most keys match, unlike with = ANY, so it reads an index in order up to
// the LIMIT.
const stepSQL = `get_byte(params_hash, 0)::text || '/' || operation || '/' || recovery_point`

func knownSteps(operations []Operation) (names []string) {
	for _, op := range operations {
		for point := range op.Steps(&Run{}).At {
			names = append(names, fmt.Sprintf("%d/%s/%s", fingerprintVersion, op.Name(), point))
		}
	}
	return names
}

// dueSQL lists the due keys of all accounts, which is an exception to R20, the account in every
// table. It takes them from each account and kind in turn, so that none delays another.
var dueSQL = `
WITH due AS (
` + ofKind("'abandoned'", "completer_attempt + 1", abandonedSQL) + `
 UNION ALL
` + ofKind("'waiting'", "completer_attempt", actionRequiredSQL) + `
 UNION ALL
` + ofKind("'polled'", "$9::bigint + 1", polledSQL) + `
)
SELECT account_id, id, last_run_at, runs, attempts
  FROM due
 ORDER BY row_number() OVER (PARTITION BY account_id, kind ORDER BY last_run_at), last_run_at
 LIMIT $2`

// ofKind lists the due keys of a kind. Its LIMIT bounds the sort after a long outage.
func ofKind(kind, attempts, condition string) string {
	return `(
    SELECT account_id, id, last_run_at, attempt AS runs, ` + attempts + ` AS attempts, ` + kind + ` AS kind
      FROM idempotency_keys
     WHERE finished_at IS NULL AND needs_review_at IS NULL
       AND ` + condition + `
       AND array_position($1::text[], ` + stepSQL + `) IS NOT NULL
     ORDER BY last_run_at
     LIMIT 100 * $2
)`
}

// abandonedSQL selects the keys whose grace is over. The first condition on last_run_at is for the
// index, the second is the backoff: it doubles with each attempt, up to $5. 20 doublings fit
// an interval.
var abandonedSQL = `action_required_at IS NULL
       AND ` + notWithin("last_run_at", "$4::interval", "$3") + `
       AND ` + notWithin("last_run_at",
	"least($4::interval * 2 ^ least(completer_attempt, 20), greatest($5::interval, $4::interval))", "$3") + `
       AND ` + notLeased("$3")

// actionRequiredSQL selects the keys that have waited $6 since their last run. A run ends the
// wait when they are $7 old: they are due at once, and then after each grace.
var actionRequiredSQL = `action_required_at IS NOT NULL
       AND (
            ` + notWithin("last_run_at", "$6::interval", "$3") + `
            OR (
                created_at <= now() - $7::interval
                AND last_run_at <= greatest(created_at + $7::interval, now() - $4::interval)
            )
       )`

// polledSQL selects keys older than $8 that are never abandoned, because clients run them far
// more often than the completer would. They count one attempt more than the completer makes, so
// they need review.
var polledSQL = `action_required_at IS NULL
       AND last_run_at > now() - $4::interval
       AND ` + notWithin("created_at", "$8::interval", "$3") + `
       AND attempt > 2 * $9::bigint`

// dueKey is a key that is due, as dueSQL has read it.
type dueKey struct {
	AccountID, ID uuid.UUID
	LastRunAt     time.Time
	Runs          int // so far
	Attempts      int // of the completer, including this one
}

func (c *Completer) due(ctx context.Context) ([]dueKey, error) {
	store := c.engine.store
	timeout := c.config.ActionTimeout - store.lockTimeout // from this age on, a run's lease ends after ActionTimeout
	return collect(ctx, store, pgx.RowToStructByPos[dueKey], dueSQL, c.steps, c.config.Limit, store.lockTimeout,
		c.config.Grace, maxBackoff, actionPollGraces*c.config.Grace, timeout, pollingLimit, c.config.MaxAttempts)
}

// claimAbandonedSQL counts an attempt of the completer and starts its backoff, unless the
// key has changed since it was listed (R16, unfinished keys stay). It takes no lease. Of
// several completers, only the first one finds the $3 listed.
var claimAbandonedSQL = `
UPDATE idempotency_keys
   SET completer_attempt = completer_attempt + (action_required_at IS NULL)::integer,
       last_run_at       = now()
 WHERE account_id = $1 AND id = $2
   AND finished_at IS NULL AND needs_review_at IS NULL
   AND last_run_at = $3
   AND ` + notLeased("$4") + `
   AND array_position($5::text[], ` + stepSQL + `) IS NOT NULL`

// complete resumes a key. The result counts this key.
func (c *Completer) complete(ctx context.Context, key dueKey) (CompleterResult, error) {
	log := c.engine.config.Logger.With("account_id", key.AccountID, "key_id", key.ID, "completer_attempts", key.Attempts)
	if key.Attempts > c.config.MaxAttempts {
		return c.markNeedsReview(ctx, key, key.Runs, log.With("error", "no run has finished it, and no attempts are left")), nil
	}
	store := c.engine.store
	claimed, err := store.exec(ctx, claimAbandonedSQL, key.AccountID, key.ID, key.LastRunAt, store.lockTimeout, c.steps)
	switch {
	case errors.Is(err, ErrInProgress), err == nil && !claimed:
		return CompleterResult{Skipped: 1}, nil
	case err != nil && ctx.Err() != nil:
		return CompleterResult{}, nil
	case err != nil:
		return CompleterResult{}, fmt.Errorf("claim abandoned key: %w", err)
	}
	result, err := c.resume(ctx, key)
	log = log.With("attempt", result.Runs, "recovery_point", result.To)
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
	default:
		return c.markNeedsReview(ctx, key, result.Runs, log.With("error", err)), nil
	}
}

// resume keeps a panic in one key's operation from the other keys.
func (c *Completer) resume(ctx context.Context, key dueKey) (result Result, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			result.Runs, err = key.Runs+1, fmt.Errorf("panic: %v", cause)
		}
	}()
	return c.engine.Resume(ctx, key.AccountID, key.ID, c.operations)
}

// markNeedsReviewSQL marks a key unless it has run since its run $3. A run of a client may have ended
// with a required action, and the completer must end the wait for it.
const markNeedsReviewSQL = `
UPDATE idempotency_keys
   SET needs_review_at = now()
 WHERE account_id = $1 AND id = $2
   AND attempt = $3
   AND finished_at IS NULL AND needs_review_at IS NULL
   AND array_position($4::text[], ` + stepSQL + `) IS NOT NULL`

func (c *Completer) markNeedsReview(ctx context.Context, key dueKey, runs int, log *slog.Logger) CompleterResult {
	marked, err := c.engine.store.exec(context.WithoutCancel(ctx), markNeedsReviewSQL, key.AccountID, key.ID, runs, c.steps)
	if err == nil && !marked {
		return CompleterResult{Skipped: 1}
	}
	log.ErrorContext(ctx, "key needs review, no attempts are left")
	if err != nil {
		log.ErrorContext(ctx, "key could not be marked for review, the next pass tries again", "cause", err)
	}
	return CompleterResult{NeedsReview: 1}
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
