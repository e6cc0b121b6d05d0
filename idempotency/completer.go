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

// maxPause is the longest that the completer leaves a key alone between two
// tries: long against an outage, short against a person's patience.
const maxPause = 6 * time.Hour

// Completer finishes the requests whose clients never came back: it resumes
// abandoned keys as a retry would, from what is stored with them. It asks
// neither for the account's credentials nor for today's validation rules. Any
// number of completers may run at once, beside any number of clients.
type Completer struct {
	engine *Engine
	find   func(operation string) (Operation, bool)
	config CompleterConfig
	logger *slog.Logger
}

// CompleterConfig bounds a [Completer]. All of it is needed.
type CompleterConfig struct {
	// Grace is how long after its last run an unfinished key counts as abandoned.
	// More than a lease (R9). It doubles with each try of the completer that
	// failed, up to six hours.
	Grace time.Duration

	// MaxAttempts is how often the completer tries a key before it leaves it to a
	// person, marked as needing review (R16).
	MaxAttempts int

	// Limit bounds the keys of one pass, Concurrency those that it works on at
	// the same time.
	Limit, Concurrency int
}

// NewCompleter returns a completer. find returns the operation of a name.
func NewCompleter(engine *Engine, find func(operation string) (Operation, bool), config CompleterConfig) (*Completer, error) {
	switch {
	case engine == nil || find == nil:
		return nil, errors.New("idempotency: a completer needs an engine and its operations")
	case config.Grace <= engine.lockTimeout:
		return nil, fmt.Errorf("idempotency: the grace of %s must be more than the lease of %s (R9)", config.Grace, engine.lockTimeout)
	case config.MaxAttempts < 1 || config.Limit < 1 || config.Concurrency < 1:
		return nil, errors.New("idempotency: MaxAttempts, Limit and Concurrency must be positive")
	}
	// Its own bound is enough, and to be turned away would use up a key's attempts.
	ungated := *engine
	ungated.runs = nil
	return &Completer{engine: &ungated, find: find, config: config, logger: engine.logger}, nil
}

// Pass counts what one pass of a [Completer] came to. Every key that it took is
// in one of the counts.
type Pass struct {
	Completed   int // finished now, whatever the response
	Busy        int // meanwhile taken, or finished, by somebody else, a client perhaps
	Failed      int // to be tried again
	NeedsReview int // given up, a person's now
}

// RunOnce makes one pass over the keys that are due, the longest idle first, so
// that one which fails always falls in behind the others. It takes none twice.
// When ctx is cancelled it finishes what is in hand and takes no more. An error
// means that it could not look for keys; the counts are right all the same.
func (c *Completer) RunOnce(ctx context.Context) (Pass, error) {
	var pass tally
	var lanes errgroup.Group
	lanes.SetLimit(c.config.Concurrency)
	err := c.takeAll(ctx, func(key abandoned) {
		lanes.Go(func() error { // waits for a free lane
			c.complete(ctx, key, &pass)
			return nil
		})
	})
	return pass.Pass, errors.Join(err, lanes.Wait())
}

// takeAll takes keys one by one until none is due. A pass that finds none costs
// one query.
func (c *Completer) takeAll(ctx context.Context, complete func(abandoned)) error {
	for range c.config.Limit {
		if ctx.Err() != nil {
			return nil
		}
		key, err := c.take(ctx)
		switch {
		case errors.Is(err, pgx.ErrNoRows), ctx.Err() != nil: // done, or told to stop
			return nil
		case err != nil:
			return fmt.Errorf("look for abandoned keys: %w", err)
		}
		complete(key)
	}
	return nil
}

// abandoned is a key that the completer took.
type abandoned struct {
	accountID, id uuid.UUID
	attempt       int // of the completer
}

// takeSQL takes one key, so that no other pass tries it before its next pause is
// over; it does not lease it, which is what [Engine.Resume] does. The first
// condition on last_run_at is for the index, the second is the pause, which
// twenty doublings bring to its limit from any start and keep an interval.
const takeSQL = `
UPDATE idempotency_keys AS k
   SET completer_attempt = k.completer_attempt + 1,
       last_run_at       = now()
  FROM (
      SELECT account_id,
             id
        FROM idempotency_keys
       WHERE finished_at IS NULL
         AND needs_review_at IS NULL
         AND last_run_at <= now() - $1::interval
         AND last_run_at <= now() - least($1::interval * 2 ^ least(completer_attempt, 20), greatest($2::interval, $1::interval))
         AND coalesce(locked_at <= now() - $3::interval, true)
       ORDER BY last_run_at
       LIMIT 1
         FOR NO KEY UPDATE SKIP LOCKED
  ) AS due
 WHERE k.account_id = due.account_id
   AND k.id = due.id
RETURNING k.account_id, k.id, k.completer_attempt`

func (c *Completer) take(ctx context.Context) (abandoned, error) {
	var key abandoned
	err := c.engine.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, takeSQL, c.config.Grace, maxPause, c.engine.lockTimeout).
			Scan(&key.accountID, &key.id, &key.attempt)
	})
	return key, err
}

// complete resumes one key and counts what came of it.
func (c *Completer) complete(ctx context.Context, key abandoned, pass *tally) {
	result, err := c.resume(ctx, key)
	log := c.logger.With("account_id", key.accountID, "key_id", key.id, "attempt", result.Attempt, "recovery_point", result.To)
	switch {
	case err == nil && !result.Replayed:
		log.InfoContext(ctx, "abandoned key completed", "from", result.From, "response", result.Response.Status)
		pass.count(func(p *Pass) { p.Completed++ })
	case err == nil, errors.Is(err, ErrInProgress):
		pass.count(func(p *Pass) { p.Busy++ })
	case key.attempt < c.config.MaxAttempts:
		log.WarnContext(ctx, "abandoned key not completed, it will be tried again", "error", err)
		pass.count(func(p *Pass) { p.Failed++ })
	default:
		log.ErrorContext(ctx, "abandoned key given up: it needs review", "completer_attempts", key.attempt, "error", err)
		if err := c.giveUp(ctx, key); err != nil {
			log.ErrorContext(ctx, "and it could not be marked, it will be tried again", "error", err)
		}
		pass.count(func(p *Pass) { p.NeedsReview++ })
	}
}

// errAttemptsUsed is about a key that has had all its attempts and was not given
// up, because the process died in the last one.
var errAttemptsUsed = errors.New("all attempts are used up, and the last one never came to an end")

// resume keeps a panic in one key's operation from the other keys.
func (c *Completer) resume(ctx context.Context, key abandoned) (result Result, err error) {
	if key.attempt > c.config.MaxAttempts {
		return Result{}, errAttemptsUsed
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return c.engine.Resume(ctx, key.accountID, key.id, c.find)
}

// giveUp leaves the key to a person (R16). Its recovery point stays: it is the
// only pointer to a possible charge.
func (c *Completer) giveUp(ctx context.Context, key abandoned) error {
	return c.engine.withConn(context.WithoutCancel(ctx), func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `
UPDATE idempotency_keys
   SET needs_review_at = now()
 WHERE account_id = $1
   AND id = $2
   AND finished_at IS NULL
   AND needs_review_at IS NULL`, key.accountID, key.id)
		return err
	})
}

// Reopen gives a key that was given up back to the completer, with all its
// attempts.
func (e *Engine) Reopen(ctx context.Context, accountID, id uuid.UUID) error {
	return e.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `
UPDATE idempotency_keys
   SET needs_review_at   = NULL,
       completer_attempt = 0
 WHERE account_id = $1
   AND id = $2
   AND finished_at IS NULL`, accountID, id)
		return err
	})
}

// tally adds up what the lanes of a pass do.
type tally struct {
	mu sync.Mutex
	Pass
}

func (t *tally) count(add func(*Pass)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	add(&t.Pass)
}
