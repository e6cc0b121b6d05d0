package receipts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	netmail "net/mail"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// concurrency is the number of mails sent at once: one slow mail does not delay the
	// others, and any mail server and pool can take it.
	concurrency = 4

	// sendTimeout bounds one session with the mail server, and so the time that a
	// worker needs to stop. RFC 5321 allows the server more time to accept a mail. A
	// shorter timeout can cause a second copy with the same Message-ID, but never a
	// lost receipt.
	sendTimeout = 30 * time.Second

	// maxAttempts is the number of attempts after which a job is marked as failed. With
	// [Backoff] these take about three days, so a mail server may be down for a weekend.
	maxAttempts = 300

	// maxBackoff bounds the delay of a receipt after its mail server has recovered.
	maxBackoff = 15 * time.Minute

	// queryTimeout bounds one statement, including the wait for a connection. It
	// equals the statement_timeout of R21.
	queryTimeout = 10 * time.Second

	// minPause keeps Run from spinning while a due job cannot be claimed.
	minPause = 100 * time.Millisecond
)

// Backoff returns about 1s after the first attempt, then 2s, 4s, … up to 15 minutes.
// The jitter of ±20% separates jobs that failed at the same time.
func Backoff(attempt int) time.Duration {
	delay := maxBackoff
	if attempt <= 10 { // 2^10 s is more than the cap
		delay = time.Second << (attempt - 1)
	}
	return delay*4/5 + rand.N(delay*2/5) //nolint:gosec // jitter needs no secrecy
}

// Config configures a [Worker].
type Config struct {
	// From is the sender: an address, or "Shop <shop@example.com>".
	From string

	// Observe, if set, is called after each attempt with its outcome (sent, retried,
	// failed or lost, see [Result]) and duration. It is called synchronously and by
	// several goroutines.
	Observe func(outcome string, took time.Duration)
}

// Worker sends the receipts of the jobs that are due. Any number of workers may run
// at once.
type Worker struct {
	store   store
	mailer  Mailer
	from    netmail.Address
	observe func(outcome string, took time.Duration)
	logger  *slog.Logger

	// Constants, except in tests.
	concurrency int
	sendTimeout time.Duration
	maxAttempts int
	backoff     func(attempt int) time.Duration
}

// NewWorker returns a worker that finds jobs through pool and sends with mailer.
func NewWorker(pool *pgxpool.Pool, mailer Mailer, config Config, logger *slog.Logger) (*Worker, error) {
	if pool == nil || mailer == nil || logger == nil {
		return nil, errors.New("receipts: a worker needs a pool, a mailer and a logger")
	}
	from, err := parseSender(config.From)
	if err != nil {
		return nil, err
	}
	return &Worker{
		store: store{pool}, mailer: mailer, from: from, observe: config.Observe, logger: logger,
		concurrency: concurrency, sendTimeout: sendTimeout, maxAttempts: maxAttempts, backoff: Backoff,
	}, nil
}

// RunOnce makes one pass: it tries every job once that is due when it starts. A job
// that fails does not keep it from the others. When ctx is cancelled RunOnce claims
// no more jobs, finishes those in progress within 30 seconds, and returns without
// an error. An error means that the database failed while RunOnce searched or
// claimed jobs; the result counts what was done until then.
func (w *Worker) RunOnce(ctx context.Context) (Result, error) {
	start := time.Now()
	now, next, err := w.store.nextDue(ctx)
	if ctx.Err() != nil {
		return Result{}, nil
	}
	if err != nil || next == nil || next.After(now) {
		return Result{}, err
	}
	p := pass{Worker: w}
	err = p.sendDue(ctx, *next, now)
	if ctx.Err() != nil {
		err = nil
	}
	if p.result != (Result{}) {
		fields := []any{
			"sent", p.result.Sent,
			"retried", p.result.Retried,
			"failed", p.result.Failed,
			"lost", p.result.Lost,
			"took", time.Since(start),
		}
		if p.lastError != nil {
			fields = append(fields, "last_error", p.lastError)
		}
		w.logger.InfoContext(ctx, "receipts pass", fields...)
	}
	return p.result, err
}

// Run repeats RunOnce until ctx is done: immediately while there are due jobs,
// otherwise when the next job is due, and at the latest after every. Errors are
// logged, not returned, because the database may become available again.
func (w *Worker) Run(ctx context.Context, every time.Duration) error {
	if every <= 0 {
		return fmt.Errorf("receipts: cannot poll every %s", every)
	}
	for ctx.Err() == nil {
		wait := every
		switch result, err := w.RunOnce(ctx); {
		case err != nil:
			w.logger.ErrorContext(ctx, "receipts pass failed", "error", err)
		case result != (Result{}):
			continue
		default:
			wait = w.untilNextDue(ctx, every)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	return nil
}

// untilNextDue is how long Run may sleep, at most limit.
func (w *Worker) untilNextDue(ctx context.Context, limit time.Duration) time.Duration {
	now, next, err := w.store.nextDue(ctx)
	if err != nil || next == nil {
		return limit
	}
	return min(limit, max(next.Sub(now), minPause))
}
