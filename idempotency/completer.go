package idempotency

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// actionPollGraces is after how many graces the completer runs a key that requires an action.
// Usually the provider's webhook has run it earlier.
const actionPollGraces = 3

// Completer resumes abandoned keys, whose clients did not retry. It never gives a key up, because an
// unfinished key may be the only pointer to a charge (R16, unfinished keys stay).
type Completer struct {
	engine *Engine
	steps  []string // see knownSteps
	config CompleterConfig
}

// CompleterConfig configures a [Completer]. All fields are required and positive.
type CompleterConfig struct {
	// Grace is how long after its last run an unfinished key is abandoned. Then the completer pauses for as
	// long as the key was old at its last run, for an hour at most.
	Grace time.Duration

	// ActionTimeout is the age at which an operation ends its wait for an action. A key runs
	// as soon as its lease would end after that age, and then once in each grace.
	ActionTimeout time.Duration

	Batch       int // of keys that are listed at once, at least 4
	Concurrency int // keys in progress at once
}

// NewCompleter returns a completer of the registered operations. It leaves the keys of others to a newer version.
func NewCompleter(engine *Engine, config CompleterConfig) *Completer {
	return &Completer{engine: engine, steps: knownSteps(engine.operations), config: config}
}

// CompleterResult counts the keys of one pass by result.
type CompleterResult struct {
	Completed int // with any response
	Skipped   int // another run was faster
	Failed    int // will be tried again

	ActionRequired int // wait for an action
}

func (r *CompleterResult) add(other CompleterResult) {
	r.Completed += other.Completed
	r.Skipped += other.Skipped
	r.Failed += other.Failed
	r.ActionRequired += other.ActionRequired
}

// RunOnce resumes the keys that are due, in batches, until none is left. When ctx ends, or the database fails, it
// finishes those in progress.
func (c *Completer) RunOnce(ctx context.Context) (total CompleterResult, err error) {
	tried := map[uuid.UUID]bool{} // a key that another transaction has locked stays due
	for ctx.Err() == nil {
		due, err := c.due(ctx)
		if err != nil && ctx.Err() == nil {
			return total, fmt.Errorf("list abandoned keys: %w", err)
		}
		due = slices.DeleteFunc(due, func(key dueKey) bool { return tried[key.ID] })
		if len(due) == 0 {
			break
		}
		var mu sync.Mutex
		workers, running := errgroup.WithContext(ctx) // ends with ctx or with the first error
		workers.SetLimit(c.config.Concurrency)
		for _, key := range due {
			tried[key.ID] = true
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
		if err := workers.Wait(); err != nil {
			return total, err
		}
	}
	return total, nil
}

// stepSQL names the step that continues a key. Commands change a row, even its times, only if the
// step is one of knownSteps (R18, newer versions). They compare it with array_position, because the
// planner then expects that most keys match, unlike with = ANY, so it reads an index in order up to
// the LIMIT.
const stepSQL = `operation || '/' || recovery_point`

func knownSteps(operations map[string]Operation) (names []string) {
	for _, op := range operations {
		for point := range op.Steps(&Run{}).At {
			names = append(names, op.Name()+"/"+string(point))
		}
	}
	return names
}

// dueKey is a key that is due, as it was listed.
type dueKey struct {
	AccountID, ID uuid.UUID
	UpdatedAt     time.Time
}

// abandonedSQL lists the keys whose pause is over, of all accounts, which is an exception to R20, the account in
// every table. The second condition on updated_at is the pause, which is as long as the key was old at its last
// change, from the grace to an hour. The first one only repeats its minimum, so that the index can be used. A time that is
// further ahead than a lease was set by a clock that ran ahead (R8, the database's clock).
//
// $1 are the known steps, $2 is the limit, $3 the lease, and $4 the grace. If $5 is true, only keys that are younger
// than an hour are listed, otherwise only the others: each half of a batch is for one of the two, so that neither
// delays the other.
const abandonedSQL = `
SELECT account_id, id, updated_at
  FROM idempotency_keys
 WHERE finished_at IS NULL
   AND action_required_at IS NULL
   AND updated_at NOT BETWEEN now() - $4::interval AND now() + $3::interval
   AND updated_at NOT BETWEEN now() - least(greatest($4::interval, updated_at - created_at), interval '1 hour') AND now() + $3::interval
   AND (locked_at IS NULL OR locked_at NOT BETWEEN now() - $3::interval AND now() + $3::interval)
   AND array_position($1::text[], ` + stepSQL + `) IS NOT NULL
   AND (created_at > now() - interval '1 hour') = $5
 ORDER BY updated_at
 LIMIT $2`

// waitingSQL lists the keys whose last run was $4 ago and found that the customer must act. A key that is $6 old is due
// at once, because the next run ends its wait, and if that run fails, again after each grace, $7.
const waitingSQL = `
SELECT account_id, id, updated_at
  FROM idempotency_keys
 WHERE finished_at IS NULL
   AND action_required_at IS NOT NULL
   AND (
            updated_at NOT BETWEEN now() - $4::interval AND now() + $3::interval
         OR (created_at <= now() - $6::interval AND updated_at <= greatest(created_at + $6::interval, now() - $7::interval))
       )
   AND array_position($1::text[], ` + stepSQL + `) IS NOT NULL
   AND (created_at > now() - interval '1 hour') = $5
 ORDER BY updated_at
 LIMIT $2`

func (c *Completer) due(ctx context.Context) (keys []dueKey, err error) {
	lease, grace, limit := c.engine.store.leaseDuration, c.config.Grace, c.config.Batch/4
	timeout := c.config.ActionTimeout - lease // from this age on, a run's lease ends after ActionTimeout
	list := func(rows pgx.Rows) error {
		listed, err := pgx.CollectRows(rows, pgx.RowToStructByPos[dueKey])
		keys = append(keys, listed...)
		return err
	}
	batch := &pgx.Batch{}
	for _, young := range []bool{true, false} {
		batch.Queue(abandonedSQL, c.steps, limit, lease, grace, young).Query(list)
		batch.Queue(waitingSQL, c.steps, limit, lease, actionPollGraces*grace, young, timeout, grace).Query(list)
	}
	err = c.engine.store.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error { return conn.SendBatch(ctx, batch).Close() })
	return keys, err
}

// claimAbandonedSQL begins the pause of a key, unless the key has changed since it was listed (R16, unfinished
// keys stay). It commits before the run, so that a key whose run ends the process is not the first one again. It
// takes no lease: only the first of several completers finds updated_at as it was listed, $3.
const claimAbandonedSQL = `
UPDATE idempotency_keys
   SET updated_at = now()
 WHERE account_id = $1 AND id = $2
   AND finished_at IS NULL
   AND updated_at = $3
   AND (locked_at IS NULL OR locked_at NOT BETWEEN now() - $4::interval AND now() + $4::interval)
   AND array_position($5::text[], ` + stepSQL + `) IS NOT NULL`

// complete resumes a key. The result counts this key.
func (c *Completer) complete(ctx context.Context, key dueKey) (CompleterResult, error) {
	store := c.engine.store
	claimed, err := store.exec(ctx, claimAbandonedSQL, key.AccountID, key.ID, key.UpdatedAt, store.leaseDuration, c.steps)
	switch {
	case errors.Is(err, ErrInProgress), err == nil && !claimed:
		return CompleterResult{Skipped: 1}, nil
	case err != nil && ctx.Err() != nil:
		return CompleterResult{}, nil
	case err != nil:
		return CompleterResult{}, fmt.Errorf("claim abandoned key: %w", err)
	}
	result, err := c.resume(ctx, key)
	log := c.engine.config.Logger.With("account_id", key.AccountID, "key_id", key.ID, "runs", result.Runs, "recovery_point", result.To)
	switch {
	case err == nil && !result.Replayed:
		log.InfoContext(ctx, "abandoned key completed", "from", result.From, "response", result.Response.Status)
		return CompleterResult{Completed: 1}, nil
	case err == nil, errors.Is(err, ErrInProgress), errors.Is(err, ErrNotFound):
		return CompleterResult{Skipped: 1}, nil
	case errors.Is(err, ErrActionRequired):
		return CompleterResult{ActionRequired: 1}, nil
	default:
		log.WarnContext(ctx, "abandoned key not completed, it will be tried again", "error", err)
		return CompleterResult{Failed: 1}, nil
	}
}

// resume keeps a panic in one key's operation from the other keys.
func (c *Completer) resume(ctx context.Context, key dueKey) (result Result, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			result.KeyID, err = key.ID, fmt.Errorf("panic: %v", cause)
		}
	}()
	return c.engine.Resume(ctx, key.AccountID, key.ID)
}
