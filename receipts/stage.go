package receipts

import (
	"crypto/sha256"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// kind names this package's jobs in staged_jobs.
const kind = "receipt"

// Queuer collects statements that travel to the database in one round trip: a
// [pgx.Batch], or the transaction of whoever runs the phase.
type Queuer interface {
	Queue(query string, arguments ...any) *pgx.QueuedQuery
}

// StageTx adds the receipt of an order to the caller's transaction (R15). An
// error shows when the caller sends its batch.
//
// The job's id is derived from the order's. A run whose outcome was lost and
// which is repeated stages the same row, and staging a second receipt for an
// order is a primary key violation that rolls the second run back, where a
// random id would send two mails.
func StageTx(tx Queuer, accountID, orderID uuid.UUID) {
	tx.Queue(`
		INSERT INTO staged_jobs (
			account_id,
			id,
			kind,
			args
		) VALUES ($1, $2, $3, jsonb_build_object('order_id', $4::uuid))`,
		accountID, jobID(orderID), kind, orderID)
}

// jobID is a UUIDv8, like the other derived ids (R5).
func jobID(orderID uuid.UUID) uuid.UUID {
	return uuid.NewHash(sha256.New(), orderID, []byte("orders-api receipt job"), 8)
}
