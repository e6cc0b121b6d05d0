package receipts

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/internal/postgres"
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

func readOrder(ctx context.Context, pool *pgxpool.Pool, accountID, id uuid.UUID) (order, error) {
	o := order{ID: id}
	err := pool.QueryRow(ctx, `
SELECT email,
       currency,
       amount,
       items,
       paid_at
  FROM orders
 WHERE account_id = $1
   AND id = $2
   AND paid_at IS NOT NULL
   AND email IS NOT NULL`, accountID, id).Scan(&o.Email, &o.Currency, &o.Amount, &o.Items, &o.PaidAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return order{}, fmt.Errorf("%w: no such paid order, or its address is erased", jobs.ErrPermanent)
	}
	if err != nil {
		return order{}, fmt.Errorf("receipts: read the order: %w", err)
	}
	return o, nil
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
