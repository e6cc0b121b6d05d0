package idempotency

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/orders-api/internal/postgres"
)

// CountReapable returns how many keys Reap would delete now.
func (e *Engine) CountReapable(ctx context.Context, retention time.Duration) (n int, err error) {
	err = e.store.queryRow(ctx, "SELECT count(*) FROM idempotency_keys WHERE finished_at <= now() - $1::interval", []any{retention}, &n)
	return n, err
}

// reapableSQL lists the finished keys past their retention, of which $3 is where the last batch
// ended: until VACUUM, the index keeps the entries of deleted rows, and each batch would read them.
const reapableSQL = `
SELECT account_id, id, finished_at
  FROM idempotency_keys
 WHERE finished_at <= now() - $1::interval
   AND finished_at >= $3
 ORDER BY finished_at
 LIMIT $2`

type reapable struct {
	AccountID, ID uuid.UUID
	FinishedAt    time.Time
}

// Reap deletes finished keys past their retention, in transactions of at most batch keys,
// until none is left or ctx ends. It pauses for as long as each batch took, to use at
// most half of the database's time.
func (e *Engine) Reap(ctx context.Context, retention time.Duration, batch int) (total int, err error) {
	var from time.Time
	for ctx.Err() == nil {
		start := e.config.Clock()
		keys, err := collect(ctx, e.store, pgx.RowToStructByPos[reapable], reapableSQL, retention, batch, from)
		deleted, last := 0, from
		if err == nil && len(keys) > 0 {
			last = keys[len(keys)-1].FinishedAt
			deleted, err = e.store.delete(ctx, retention, keys)
		}
		total += deleted
		if err != nil && ctx.Err() == nil {
			return total, fmt.Errorf("reap keys: %w", err)
		}
		if len(keys) < batch || deleted == 0 && last.Equal(from) { // all locked
			break
		}
		from = last
		select {
		case <-time.After(e.config.Clock().Sub(start)):
		case <-ctx.Done():
		}
	}
	return total, nil
}

// deleteSQL deletes keys of one account, because Citus deletes only from one shard. The rows that it
// inserts reject a reuse of the keys (R17, used for ever). An unfinished key stays, because it has
// no finished_at (R16, unfinished keys stay). %s is the reaper's SKIP LOCKED.
const deleteSQL = `
WITH deleted AS (
    DELETE FROM idempotency_keys
     WHERE account_id = $1
       AND id IN (
           SELECT id
             FROM idempotency_keys
            WHERE account_id = $1
              AND id = ANY($2::uuid[])
              AND finished_at <= now() - $3::interval
              FOR UPDATE %s
       )
    RETURNING account_id, id, operation, request_path, created_at, finished_at
)
INSERT INTO expired_keys (account_id, id, operation, request_path, created_at, finished_at)
SELECT * FROM deleted
ON CONFLICT DO NOTHING`

func (s *store) delete(ctx context.Context, retention time.Duration, keys []reapable) (deleted int, err error) {
	byAccount := map[uuid.UUID][]uuid.UUID{}
	for _, key := range keys {
		byAccount[key.AccountID] = append(byAccount[key.AccountID], key.ID)
	}
	err = s.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		batch := &pgx.Batch{} // one transaction
		for accountID, ids := range byAccount {
			batch.Queue(fmt.Sprintf(deleteSQL, "SKIP LOCKED"), accountID, ids, retention).Exec(func(tag pgconn.CommandTag) error {
				deleted += int(tag.RowsAffected())
				return nil
			})
		}
		return conn.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return 0, err
	}
	return deleted, nil
}

// ExpireTx queues that finished keys of an account expire before their retention is over. Unlike the reaper,
// which comes again, it waits for a row that another transaction has locked.
func ExpireTx(tx postgres.Queuer, accountID uuid.UUID, ids []uuid.UUID) {
	tx.Queue(fmt.Sprintf(deleteSQL, ""), accountID, ids, time.Duration(0))
}

// ExpireLost makes a key whose row was lost an expired key (R17, used for ever).
func (e *Engine) ExpireLost(ctx context.Context, accountID, id uuid.UUID, operation, path string, createdAt time.Time) error {
	_, err := e.store.exec(ctx, `
INSERT INTO expired_keys (account_id, id, operation, request_path, created_at, finished_at, lost)
VALUES ($1, $2, $3, $4, $5, now(), true)
ON CONFLICT DO NOTHING`, accountID, id, operation, path, createdAt)
	return err
}
