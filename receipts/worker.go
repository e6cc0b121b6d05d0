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
	concurrency  = 4                // so that a slow mail does not delay the others
	sendTimeout  = 30 * time.Second // of one mail, and thereby of a shutdown
	maxAttempts  = 300              // about three days, so a weekend's outage loses nothing
	maxBackoff   = 15 * time.Minute
	queryTimeout = 10 * time.Second // of one statement, with the wait for a connection
)

// Backoff returns 1s after the first attempt, then 2s, 4s, … up to 15 minutes, ±20%.
func Backoff(attempt int) time.Duration {
	delay := maxBackoff
	if attempt <= 10 { // 2^10 s is more than the cap
		delay = time.Second << (attempt - 1)
	}
	return delay*4/5 + rand.N(delay*2/5) //nolint:gosec // jitter needs no secrecy
}

// Config configures a [Worker].
type Config struct {
	From    string                                   // such as Shop <shop@example.com>
	Observe func(outcome string, took time.Duration) // of each attempt, also concurrently; may be nil
}

// Worker sends due receipts. Any number may run concurrently.
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

// NewWorker returns a Worker.
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

// RunOnce tries every due job once. If ctx is cancelled, it finishes those in progress.
func (w *Worker) RunOnce(ctx context.Context) (Result, error) {
	start := time.Now()
	result := Result{}
	now, err := postgres.Now(ctx, w.store.pool)
	if err == nil {
		err = w.sendDue(ctx, now, result)
	}
	if len(result) > 0 {
		w.logger.InfoContext(ctx, "receipts pass", Sent, result[Sent], Retried, result[Retried],
			Failed, result[Failed], Lost, result[Lost], "took", time.Since(start))
	}
	if ctx.Err() != nil {
		err = nil
	}
	return result, err
}
