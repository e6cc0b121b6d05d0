package receipts

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/internal/postgres"
)

// FindOrder returns a paid order with its email address. If there is none, the error is [jobs.ErrPermanent].
type FindOrder = func(ctx context.Context, accountID, id uuid.UUID) (Order, error)

// NewWorker returns a worker that sends due receipts. from is such as Shop <shop@example.com>.
func NewWorker(pool *pgxpool.Pool, find FindOrder, mailer Mailer, from string, logger *slog.Logger) *jobs.Worker {
	return &jobs.Worker{
		Pool:        pool,
		Logger:      logger,
		Kind:        Kind,
		Do:          func(ctx context.Context, j jobs.Job) error { return send(ctx, find, mailer, from, j) },
		Timeout:     30 * time.Second,
		Concurrency: 4,
		Detail:      detail,
	}
}

func send(ctx context.Context, find FindOrder, mailer Mailer, from string, j jobs.Job) error {
	var of args
	if err := json.Unmarshal(j.Args, &of); err != nil || of.OrderID == uuid.Nil {
		return errors.New("the job names no order, so it may be of a newer version")
	}
	o, err := find(ctx, j.AccountID, of.OrderID)
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

// Kind is that of the receipts' jobs.
const Kind = "receipt"

// StageTx queues the INSERT of an order's only receipt job in the caller's transaction (R15, staged receipt).
func StageTx(tx postgres.Queuer, accountID, orderID uuid.UUID) {
	id := uuid.NewHash(sha256.New(), orderID, []byte("orders-api receipt job"), 8)
	jobs.StageTx(tx, accountID, id, Kind, args{orderID})
}

type args struct {
	OrderID uuid.UUID `json:"order_id"`
}
