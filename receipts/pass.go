package receipts

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/internal/postgres"
)

// batchSize is how many candidates one read returns. The read takes about as long
// as one claim.
const batchSize = 100

// pass is one pass of a worker over the jobs that are due.
type pass struct {
	*Worker
	counter
	claims atomic.Int64
}

// sendDue sends the receipts that are due in the given period, the longest due first.
// It claims a job when the mail can be sent immediately. So a slow mail delays no
// other, a lease covers one mail, and a stop leaves no claimed job behind.
func (p *pass) sendDue(ctx context.Context, from, to time.Time) error {
	sending, ctx := errgroup.WithContext(ctx)
	sending.SetLimit(p.config.Concurrency)
	for ctx.Err() == nil {
		claims := p.claims.Load()
		batch, err := p.store.candidates(ctx, from, to, batchSize)
		if err != nil {
			return errors.Join(err, sending.Wait())
		}
		for _, c := range batch {
			sending.Go(func() error { return p.sendOne(ctx, c) })
		}
		if len(batch) < batchSize {
			break
		}
		last := batch[batchSize-1].runAt
		if last.Equal(from) && p.claims.Load() == claims { // all of them are locked
			break
		}
		from = last
	}
	return sending.Wait()
}

// sendOne claims a candidate and makes one attempt. It passes over a candidate that
// has changed since it was read, mostly because another worker has claimed it, and
// over one whose row another transaction holds (R16). The lease is the longest time
// that an attempt can take: reading the order, sending, and the statements around them.
func (p *pass) sendOne(ctx context.Context, c candidate) error {
	if ctx.Err() != nil {
		return nil
	}
	claiming, cancel := detached(ctx, queryTimeout)
	defer cancel()
	j, err := p.store.claim(claiming, c, p.config.SendTimeout+3*queryTimeout)
	switch {
	case errors.Is(err, errChanged), errors.Is(err, postgres.ErrLockTimeout):
		return nil
	case err != nil:
		return err
	}
	p.claims.Add(1)
	start := time.Now()
	outcome, cause := p.attempt(ctx, j)
	p.add(outcome, cause)
	if p.config.Observe != nil {
		p.config.Observe(outcome.String(), time.Since(start))
	}
	return nil
}

// attempt sends one receipt and records the outcome.
func (w *Worker) attempt(ctx context.Context, j job) (outcome, error) {
	cause := w.send(ctx, j)
	log := w.logger.With("account_id", j.accountID, "job_id", j.id, "order_id", j.orderID, "attempt", j.attempt)

	result, held, err := w.finishJob(ctx, j, cause)
	switch {
	case err != nil || !held:
		log.WarnContext(ctx, "outcome of a receipt not recorded", "outcome", result.String(), "error", err)
		return lost, cause
	case result == failed:
		log.ErrorContext(ctx, "receipt marked as failed", "error", cause)
	case result == retried:
		log.DebugContext(ctx, "receipt failed", "error", cause)
	}
	return result, cause
}

// finishJob deletes the job, schedules its next attempt or marks it as failed. held
// is false if the lease has expired and another worker has claimed the job.
func (w *Worker) finishJob(ctx context.Context, j job, cause error) (result outcome, held bool, err error) {
	ctx, cancel := detached(ctx, queryTimeout)
	defer cancel()
	switch {
	case cause == nil:
		held, err = w.store.delete(ctx, j)
		return sent, held, err
	case errors.Is(cause, ErrPermanent) || j.attempt >= w.config.MaxAttempts:
		held, err = w.store.markFailed(ctx, j, cause)
		return failed, held, err
	default:
		held, err = w.store.retryLater(ctx, j, w.config.Backoff(j.attempt), cause)
		return retried, held, err
	}
}

// send reads the order, renders the receipt and sends it. It holds no database
// connection while it sends (R6).
func (w *Worker) send(ctx context.Context, j job) error {
	if j.attempt > w.config.MaxAttempts {
		return errors.New("receipts: no attempt ended")
	}
	orderID, err := uuid.Parse(j.orderID)
	if err != nil {
		return fmt.Errorf("%w: the job has no order id", ErrPermanent)
	}
	o, err := w.order(ctx, j.accountID, orderID)
	if err != nil {
		return err
	}
	message, err := w.renderer.message(o)
	if err != nil {
		return err
	}
	ctx, cancel := detached(ctx, w.config.SendTimeout)
	defer cancel()
	return w.mailer.Send(ctx, message)
}

func (w *Worker) order(ctx context.Context, accountID, orderID uuid.UUID) (order, error) {
	ctx, cancel := detached(ctx, queryTimeout)
	defer cancel()
	return w.store.order(ctx, accountID, orderID)
}

// detached returns a context for a step that a stop must not interrupt: the job of a
// mail that was accepted during the stop must still be deleted.
func detached(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), timeout)
}
