package receipts

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/internal/postgres"
)

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
