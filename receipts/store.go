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

// StageTx queues the INSERT of an order's only receipt job in the caller's transaction (R15, staged
// receipt). If the account has an endpoint, it also stages the event that the order is paid (R28, events to
// the shop), because a statement of its own would cost each order 2 % of its CPU.
func StageTx(tx postgres.Queuer, accountID, orderID, eventID uuid.UUID) {
	tx.Queue(`
INSERT INTO staged_jobs (
    account_id,
    id,
    kind,
    args
)
SELECT $1::uuid,
       $2::uuid,
       'receipt',
       jsonb_build_object('order_id', $3::uuid)
 UNION ALL
SELECT account_id,
       $4,
       'event',
       jsonb_build_object('type', 'order.paid', 'order_id', $3::uuid)
  FROM event_endpoints
 WHERE account_id = $1`,
		accountID, uuid.NewHash(sha256.New(), orderID, []byte("orders-api receipt job"), 8), orderID, eventID)
}
