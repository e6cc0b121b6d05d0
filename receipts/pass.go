package receipts

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/internal/postgres"
)

// batchSize is how many candidates one read returns. The read takes about as long
// as one claim.
const batchSize = 100

// pass is one pass of a worker over the jobs that are due.
type pass struct {
	*Worker
	counter
	busy    chan struct{} // holds one element for each mail in progress
	sending sync.WaitGroup
}

// sendDue sends the receipts that are due in the given period, the longest due
// first, and waits for the mails in progress. Workers that read the same candidates
// meet at a job that one of them has claimed: the other one reads again and
// continues at a random candidate, so that they rarely meet a second time (R16).
func (p *pass) sendDue(ctx context.Context, from, to time.Time) error {
	defer p.sending.Wait()
	contended := false
	for {
		batch, err := p.store.candidates(ctx, from, to, batchSize)
		if ctx.Err() != nil || err == nil && len(batch) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		last := batch[len(batch)-1].runAt
		if contended {
			n := rand.N(len(batch)) //nolint:gosec // needs no secrecy
			batch = append(batch[n:], batch[:n]...)
		}
		claims, err := p.sendBatch(ctx, batch)
		switch {
		case errors.Is(err, errChanged):
			contended = true
		case err != nil:
			return err
		case len(batch) < batchSize, claims == 0 && last.Equal(from): // the rest is locked
			return nil
		default:
			from = last
		}
	}
}

// sendBatch claims each candidate when it can be sent immediately. So a slow mail
// delays no other, a lease covers one mail, and a stop leaves no claimed job behind.
// It returns errChanged at the first candidate that has changed, and passes over
// those whose rows other transactions hold.
func (p *pass) sendBatch(ctx context.Context, batch []candidate) (claims int, err error) {
	for _, c := range batch {
		select {
		case p.busy <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return claims, nil
		}
		j, err := p.claim(ctx, c)
		if err == nil {
			claims++
			p.sending.Go(func() {
				p.process(ctx, j)
				<-p.busy
			})
			continue
		}
		<-p.busy
		if !errors.Is(err, postgres.ErrLockTimeout) {
			return claims, err
		}
	}
	return claims, nil
}

// claim leases a job for the longest time that an attempt can take: reading the
// order, sending, and the statements before and after.
func (p *pass) claim(ctx context.Context, c candidate) (job, error) {
	ctx, cancel := detached(ctx, queryTimeout)
	defer cancel()
	return p.store.claim(ctx, c, p.config.SendTimeout+3*queryTimeout)
}

// process makes one attempt and reports its outcome.
func (p *pass) process(ctx context.Context, j job) {
	start := time.Now()
	outcome, cause := p.attempt(ctx, j)
	p.add(outcome, cause)
	if p.config.Observe != nil {
		p.config.Observe(outcome.String(), time.Since(start))
	}
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
