package receipts

import (
	"context"
	"encoding/json"
	"errors"
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
		Do:          func(ctx context.Context, j jobs.Job) error { return send(ctx, pool, mailer, from, j) },
		Timeout:     30 * time.Second,
		Concurrency: 4,
		Detail:      detail,
	}
}

func send(ctx context.Context, pool *pgxpool.Pool, mailer Mailer, from string, j jobs.Job) error {
	var of args
	if err := json.Unmarshal(j.Args, &of); err != nil || of.OrderID == uuid.Nil {
		return errors.New("the job names no order, so it may be of a newer version")
	}
	o, err := readOrder(ctx, pool, j.AccountID, of.OrderID)
	if err != nil {
		return err
	}
	message, err := newMessage(from, o)
	if err != nil {
		return err
	}
	return mailer.Send(ctx, of.OrderID, message)
}

// detail adds the mail server's text.
func detail(cause error) string {
	text := cause.Error()
	if failed, ok := errors.AsType[*sendError](cause); ok {
		text += " (" + failed.cause.Error() + ")"
	}
	return text
}
