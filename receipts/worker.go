package receipts

import (
	"context"
	"log/slog"
	"math/rand/v2"
	netmail "net/mail"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

const (
	// concurrency is the number of mails sent at once, so that one slow mail delays no
	// other.
	concurrency = 4

	// sendTimeout bounds one SMTP session, and thereby a worker's shutdown. RFC 5321
	// allows more time. A timeout can cause a second copy, never a lost receipt.
	sendTimeout = 30 * time.Second

	// maxAttempts takes about three days with [Backoff], so it survives a weekend's
	// outage.
	maxAttempts = 300

	maxBackoff = 15 * time.Minute

	// queryTimeout bounds one statement with the wait for a connection, as in R21.
	queryTimeout = 10 * time.Second
)

// Backoff returns 1s after the first attempt, then 2s, 4s, … up to 15 minutes, with a
// jitter of ±20%.
func Backoff(attempt int) time.Duration {
	delay := maxBackoff
	if attempt <= 10 { // 2^10 s is more than the cap
		delay = time.Second << (attempt - 1)
	}
	return delay*4/5 + rand.N(delay*2/5) //nolint:gosec // jitter needs no secrecy
}

// Config configures a [Worker].
type Config struct {
	// From is the sender, such as "Shop <shop@example.com>". The receipt names its
	// name.
	From string

	// Observe, if set, is called synchronously after each attempt with its outcome, such
	// as [Sent]. It must be safe for concurrent use.
	Observe func(outcome string, took time.Duration)
}

// Worker sends the receipts of due jobs. Any number of workers may run concurrently.
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

// NewWorker returns a worker.
func NewWorker(pool *pgxpool.Pool, mailer Mailer, config Config, logger *slog.Logger) (*Worker, error) {
	from, err := parseSender(config.From)
	if err != nil {
		return nil, err
	}
	return &Worker{
		store: store{pool}, mailer: mailer, from: from, observe: config.Observe, logger: logger,
		concurrency: concurrency, sendTimeout: sendTimeout, maxAttempts: maxAttempts, backoff: Backoff,
	}, nil
}

// RunOnce tries once every job that is due at its start. When ctx is cancelled it
// claims no more jobs, finishes those in progress within 30 seconds, and returns no
// error. An error means that the database failed; the result counts the attempts until
// then.
func (w *Worker) RunOnce(ctx context.Context) (Result, error) {
	start := time.Now()
	p := pass{Worker: w, result: Result{}}
	now, err := postgres.Now(ctx, w.store.pool)
	if err == nil {
		err = p.sendDue(ctx, now)
	}
	if ctx.Err() != nil {
		err = nil
	}
	if len(p.result) > 0 {
		fields := []any{
			Sent, p.result[Sent],
			Retried, p.result[Retried],
			Failed, p.result[Failed],
			Lost, p.result[Lost],
			"took", time.Since(start),
		}
		if p.lastError != nil {
			fields = append(fields, "last_error", p.lastError)
		}
		w.logger.InfoContext(ctx, "receipts pass", fields...)
	}
	return p.result, err
}
