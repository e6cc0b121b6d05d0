package idempotency

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/internal/postgres"
)

// CountReapable returns how many keys Reap would delete now.
func (e *Engine) CountReapable(ctx context.Context, retention time.Duration) (n int, err error) {
	err = e.store.queryRow(ctx, "SELECT count(*) FROM idempotency_keys WHERE finished_at <= now() - $1::interval", []any{retention}, &n)
	return n, err
}

// Reap deletes finished keys past their retention, in transactions of at most batch keys,
// until none is left or ctx ends. It pauses for as long as each batch took, to use at
// most half of the database's time.
func (e *Engine) Reap(ctx context.Context, retention time.Duration, batch int) (total int, err error) {
	from := &time.Time{}
	for ctx.Err() == nil {
		start := e.config.Clock()
		deleted := 0
		err = e.store.queryRow(ctx, reapSQL, []any{retention, from, batch}, &deleted, &from)
		total += deleted
		if err != nil && ctx.Err() == nil {
			return total, fmt.Errorf("reap keys: %w", err)
		}
		if deleted < batch { // the others are locked
			return total, nil
		}
		select {
		case <-time.After(e.config.Clock().Sub(start)):
		case <-ctx.Done():
		}
	}
	return total, nil
}

// deleteSQL deletes the finished keys that a condition selects. The rows that it inserts reject a reuse of
// the keys (R17, used for ever). An unfinished key stays, because it has no finished_at (R16, unfinished
// keys stay).
const deleteSQL = `
WITH deleted AS (
    DELETE FROM idempotency_keys
     WHERE (account_id, id) IN (
           SELECT account_id, id
             FROM idempotency_keys
            WHERE finished_at <= now() - $1::interval
              AND %s
       )
    RETURNING account_id, id, operation, request_path, created_at, finished_at
), expired AS (
    INSERT INTO expired_keys (account_id, id, operation, request_path, created_at, finished_at)
    SELECT * FROM deleted
    ON CONFLICT DO NOTHING
)
SELECT count(*), max(finished_at) FROM deleted`

// reapSQL begins at $2, where the last batch ended: until VACUUM, the index keeps the entries of deleted
// rows, and each batch would read them.
var reapSQL = fmt.Sprintf(deleteSQL, `finished_at >= $2
            ORDER BY finished_at
            LIMIT $3
              FOR UPDATE SKIP LOCKED`)

// ExpireTx queues that finished keys of an account expire before their retention is over. Unlike the reaper,
// which comes again, it waits for a row that another transaction has locked.
func ExpireTx(tx postgres.Queuer, accountID uuid.UUID, ids []uuid.UUID) {
	tx.Queue(fmt.Sprintf(deleteSQL, "account_id = $2 AND id = ANY($3::uuid[]) FOR UPDATE"), time.Duration(0), accountID, ids)
}

// ExpireLost makes a key whose row was lost an expired key (R17, used for ever).
func (e *Engine) ExpireLost(ctx context.Context, accountID, id uuid.UUID, operation, path string, createdAt time.Time) error {
	_, err := e.store.exec(ctx, `
INSERT INTO expired_keys (account_id, id, operation, request_path, created_at, finished_at, lost)
VALUES ($1, $2, $3, $4, $5, now(), true)
ON CONFLICT DO NOTHING`, accountID, id, operation, path, createdAt)
	return err
}
