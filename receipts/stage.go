package receipts

import (
	"crypto/sha256"

	"github.com/google/uuid"

	"example.com/orders-api/internal/postgres"
)

const kind = "receipt"

// StageTx queues the INSERT of an order's only receipt job in the caller's transaction (R15).
func StageTx(tx postgres.Queuer, accountID, orderID uuid.UUID) {
	tx.Queue(`
		INSERT INTO staged_jobs (
			account_id,
			id,
			kind,
			args
		) VALUES ($1, $2, $3, jsonb_build_object('order_id', $4::uuid))`,
		accountID, uuid.NewHash(sha256.New(), orderID, []byte("orders-api receipt job"), 8), kind, orderID)
}
