package receipts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/internal/postgres"
)

const (
	concurrency     = 4                // so that a slow mail does not delay the others
	sendTimeout     = 30 * time.Second // of one mail; a shutdown waits for it
	maxMailAttempts = 300              // about three days, so a weekend's outage loses nothing
	maxBackoff      = 15 * time.Minute
	queryTimeout    = 10 * time.Second // of one statement, with the wait for a connection
)

// backoff returns 1s after the first attempt, then 2s, 4s, … up to 15 minutes, ±20%.
func backoff(attempt int) time.Duration {
	delay := maxBackoff
	if attempt <= 10 { // 2^10 s is more than the cap
		delay = time.Second << (attempt - 1)
	}
	return delay*4/5 + rand.N(delay*2/5) //nolint:gosec // jitter needs no secrecy
}

// Worker sends due receipts. Any number may run concurrently.
type Worker struct {
	pool    *pgxpool.Pool
	mailer  Mailer
	from    string
	observe func(outcome string, took time.Duration)
	logger  *slog.Logger

	// Constants, except in tests.
	concurrency int
	sendTimeout time.Duration
	backoff     func(attempt int) time.Duration
}

// NewWorker returns a Worker. from is such as Shop <shop@example.com>. observe may be nil, and is
// otherwise called after each attempt, also concurrently.
func NewWorker(
	pool *pgxpool.Pool, mailer Mailer, from string, observe func(outcome string, took time.Duration), logger *slog.Logger,
) *Worker {
	return &Worker{pool, mailer, from, observe, logger, concurrency, sendTimeout, backoff}
}

// RunOnce tries every due job once. If ctx is cancelled, it finishes those in progress.
func (w *Worker) RunOnce(ctx context.Context) (Result, error) {
	start := time.Now()
	result := Result{}
	now, err := postgres.Now(ctx, w.pool)
	if err == nil {
		err = w.sendDue(ctx, now, result)
	}
	if len(result) > 0 {
		w.logger.InfoContext(ctx, "receipts pass", Sent, result[Sent], Retried, result[Retried],
			Failed, result[Failed], Lost, result[Lost], "duration_seconds", time.Since(start).Seconds())
	}
	if ctx.Err() != nil {
		err = nil
	}
	return result, err
}

const batchSize = 100

// Outcomes of an attempt.
const (
	Sent    = "sent"
	Retried = "retried"
	Failed  = "failed" // an operator has to act
	Lost    = "lost"   // not recorded, so an accepted mail is sent again
)

// Result counts the attempts of one pass by outcome.
type Result map[string]int

func (w *Worker) sendDue(ctx context.Context, until time.Time, result Result) error {
	for ctx.Err() == nil {
		batch, err := w.due(ctx, until)
		if err != nil {
			return err
		}
		outcomes := make([]string, len(batch))
		sending, ctx := errgroup.WithContext(ctx)
		sending.SetLimit(w.concurrency)
		for i, j := range batch {
			sending.Go(func() (err error) {
				outcomes[i], err = w.sendOne(ctx, j)
				return err
			})
		}
		err = sending.Wait()
		outcomes = slices.DeleteFunc(outcomes, func(outcome string) bool { return outcome == "" })
		for _, outcome := range outcomes {
			result[outcome]++
		}
		if err != nil || len(outcomes) == 0 || len(batch) < batchSize {
			return err
		}
	}
	return nil
}

// sendOne claims a job and makes one attempt. The outcome is empty if another worker has the job.
// The lease covers the send and three statements, and a stop does not interrupt it, because the job
// of an accepted mail must still be deleted.
func (w *Worker) sendOne(ctx context.Context, j job) (outcome string, err error) {
	if ctx.Err() != nil {
		return "", nil
	}
	lease := w.sendTimeout + 3*queryTimeout
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease)
	defer cancel()
	claimed, err := w.claim(ctx, &j, lease)
	if err != nil || !claimed {
		return "", err
	}
	start := time.Now()
	outcome = w.record(ctx, j, w.send(ctx, j))
	if w.observe != nil {
		w.observe(outcome, time.Since(start))
	}
	return outcome, nil
}

// send holds no database connection while the mail server works (R6, nothing held during a call).
func (w *Worker) send(ctx context.Context, j job) error {
	if j.MailAttempt > maxMailAttempts {
		return errors.New("receipts: no attempt ended")
	}
	orderID, err := uuid.Parse(j.orderID)
	if err != nil {
		return fmt.Errorf("%w: the job has no order id", ErrPermanent)
	}
	o, err := w.order(ctx, j.AccountID, orderID)
	if err != nil {
		return err
	}
	message, err := newMessage(w.from, o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, w.sendTimeout)
	defer cancel()
	return w.mailer.Send(ctx, message)
}

func (w *Worker) record(ctx context.Context, j job, cause error) (outcome string) {
	log := w.logger.With("account_id", j.AccountID, "job_id", j.ID, "order_id", j.orderID, "attempt", j.MailAttempt)
	var held bool
	var err error
	switch {
	case cause == nil:
		outcome = Sent
		held, err = w.delete(ctx, j)
	case errors.Is(cause, ErrPermanent) || j.MailAttempt >= maxMailAttempts:
		outcome = Failed
		held, err = w.recordFailure(ctx, j, 0, cause, true)
	default:
		outcome = Retried
		held, err = w.recordFailure(ctx, j, w.backoff(j.MailAttempt), cause, false)
	}
	switch {
	case err != nil || !held:
		log.WarnContext(ctx, "outcome of a receipt not recorded", "outcome", outcome, "error", err)
		return Lost
	case outcome == Failed:
		log.ErrorContext(ctx, "receipt marked as failed", "error", cause)
	case outcome == Retried:
		log.DebugContext(ctx, "receipt failed", "error", cause)
	}
	return outcome
}
