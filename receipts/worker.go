package receipts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/jobs"
)

// NewWorker returns a worker that sends due receipts. from is such as Shop <shop@example.com>.
func NewWorker(pool *pgxpool.Pool, mailer Mailer, from string, logger *slog.Logger) *jobs.Worker {
	return &jobs.Worker{
		Pool:        pool,
		Logger:      logger,
		Kind:        Kind,
		Done:        Sent,
		Do:          func(ctx context.Context, j jobs.Job) error { return send(ctx, pool, mailer, from, j) },
		Timeout:     30 * time.Second,
		Concurrency: 4,
		Detail:      detail,
		Backoff:     jobs.Backoff,
	}
}

// Sent is the outcome of a receipt that the mail server accepted.
const Sent = "sent"

func send(ctx context.Context, pool *pgxpool.Pool, mailer Mailer, from string, j jobs.Job) error {
	orderID, err := uuid.Parse(j.OrderID)
	if err != nil {
		return fmt.Errorf("%w: the job has no order id", jobs.ErrPermanent)
	}
	o, err := readOrder(ctx, pool, j.AccountID, orderID)
	if err != nil {
		return err
	}
	message, err := newMessage(from, o)
	if err != nil {
		return err
	}
	return mailer.Send(ctx, message)
}

// detail adds the mail server's text.
func detail(cause error) string {
	text := cause.Error()
	if failed, ok := errors.AsType[*sendError](cause); ok {
		text += " (" + failed.cause.Error() + ")"
	}
	return text
}
