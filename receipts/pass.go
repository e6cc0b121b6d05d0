package receipts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
)

const batchSize = 100

// Outcomes of an attempt.
const (
	Sent    = "sent"    // accepted by the mail server, job deleted
	Retried = "retried" // to be tried again after its backoff
	Failed  = "failed"  // not to be tried again: failed_at is set, an operator has to act
	// Lost outcomes could not be recorded: the lease had expired or the database was
	// unavailable. The job is tried again, so an accepted mail is sent twice.
	Lost = "lost"
)

// Result counts the attempts of one pass by outcome.
type Result map[string]int

type pass struct {
	*Worker

	mu        sync.Mutex
	result    Result
	lastError error // a sample, for the log
}

// sendDue sends the receipts that are due until then, oldest first, in batches. It ends
// also if all jobs of a batch are locked. A job is claimed when its mail can be sent at
// once, so no job stays claimed after a stop.
func (p *pass) sendDue(ctx context.Context, until time.Time) error {
	for ctx.Err() == nil {
		before := maps.Clone(p.result)
		batch, err := p.store.candidates(ctx, until)
		if err != nil {
			return err
		}
		sending, ctx := errgroup.WithContext(ctx)
		sending.SetLimit(p.concurrency)
		for _, c := range batch {
			sending.Go(func() error { return p.sendOne(ctx, c) })
		}
		if err := sending.Wait(); err != nil || len(batch) < batchSize || maps.Equal(p.result, before) {
			return err
		}
	}
	return nil
}

// sendOne claims a candidate and makes one attempt. The lease covers the send and three
// statements.
func (p *pass) sendOne(ctx context.Context, c candidate) error {
	if ctx.Err() != nil {
		return nil
	}
	claiming, cancel := detached(ctx, queryTimeout)
	defer cancel()
	j, claimed, err := p.store.claim(claiming, c, p.sendTimeout+3*queryTimeout)
	if err != nil || !claimed {
		return err
	}
	start := time.Now()
	outcome, cause := p.attempt(ctx, j)
	p.count(outcome, cause)
	if p.observe != nil {
		p.observe(outcome, time.Since(start))
	}
	return nil
}

func (p *pass) count(outcome string, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result[outcome]++
	if cause != nil {
		p.lastError = cause
	}
}

// attempt sends one receipt and records the outcome.
func (w *Worker) attempt(ctx context.Context, j job) (outcome string, cause error) {
	cause = w.send(ctx, j)
	log := w.logger.With("account_id", j.AccountID, "job_id", j.ID, "order_id", j.orderID, "attempt", j.Attempt)

	recording, cancel := detached(ctx, queryTimeout)
	defer cancel()
	var held bool
	var err error
	switch {
	case cause == nil:
		outcome = Sent
		held, err = w.store.delete(recording, j)
	case errors.Is(cause, ErrPermanent) || j.Attempt >= w.maxAttempts:
		outcome = Failed
		held, err = w.store.recordFailure(recording, j, 0, cause, true)
	default:
		outcome = Retried
		held, err = w.store.recordFailure(recording, j, w.backoff(j.Attempt), cause, false)
	}
	switch {
	case err != nil || !held:
		log.WarnContext(ctx, "outcome of a receipt not recorded", "outcome", outcome, "error", err)
		outcome = Lost
	case outcome == Failed:
		log.ErrorContext(ctx, "receipt marked as failed", "error", cause)
	case outcome == Retried:
		log.DebugContext(ctx, "receipt failed", "error", cause)
	}
	return outcome, cause
}

// send renders and sends a receipt. It holds no database connection while it sends
// (R6).
func (w *Worker) send(ctx context.Context, j job) error {
	if j.Attempt > w.maxAttempts {
		return errors.New("receipts: no attempt ended")
	}
	orderID, err := uuid.Parse(j.orderID)
	if err != nil {
		return fmt.Errorf("%w: the job has no order id", ErrPermanent)
	}
	reading, cancel := detached(ctx, queryTimeout)
	defer cancel()
	o, err := w.store.order(reading, j.AccountID, orderID)
	if err != nil {
		return err
	}
	message, err := newMessage(w.from, o)
	if err != nil {
		return err
	}
	sending, cancel := detached(ctx, w.sendTimeout)
	defer cancel()
	return w.mailer.Send(sending, message)
}

// detached returns a context for a step that a stop must not interrupt. The job of an
// accepted mail must still be deleted.
func detached(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), timeout)
}
