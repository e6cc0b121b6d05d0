package idempotency

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/internal/postgres"
)

const reapable = "finished_at <= now() - $1::interval AND expired_at IS NULL"

// CountReapable returns how many keys Reap would empty now.
func (e *Engine) CountReapable(ctx context.Context, retention time.Duration) (n int, err error) {
	err = e.store.queryRow(ctx, "SELECT count(*) FROM idempotency_keys WHERE "+reapable, []any{retention}, &n)
	return n, err
}

// emptied removes what a client has sent and received, with the key itself, from which its id derives.
// The rest of the row rejects each reuse of the key (R17, used for ever).
const emptied = `
       idempotency_key  = NULL,
       request_method   = NULL,
       request_params   = NULL,
       fingerprint      = NULL,
       response_code    = NULL,
       response_headers = NULL,
       response_body    = NULL,
       last_error       = NULL,
       expired_at       = now()`

// reapSQL empties the finished keys past their retention. An unfinished key stays, because it has no
// finished_at (R16, unfinished keys stay). $3 is where the last batch ended: until VACUUM, the index keeps
// the entries of emptied rows, and each batch would read them.
const reapSQL = `
UPDATE idempotency_keys AS k
   SET` + emptied + `
  FROM (
           SELECT account_id, id
             FROM idempotency_keys
            WHERE ` + reapable + `
              AND finished_at >= $3
            ORDER BY finished_at
            LIMIT $2
              FOR NO KEY UPDATE SKIP LOCKED
       ) AS due
 WHERE k.account_id = due.account_id
   AND k.id = due.id
RETURNING k.finished_at`

// Reap empties finished keys past their retention, in transactions of at most batch keys,
// until none is left or ctx ends. It pauses for as long as each batch took, to use at
// most half of the database's time.
func (e *Engine) Reap(ctx context.Context, retention time.Duration, batch int) (total int, err error) {
	var from time.Time
	for ctx.Err() == nil {
		start := e.config.Clock()
		finished, err := postgres.Collect(ctx, e.store.pool, "reap keys", pgx.RowTo[time.Time], reapSQL, retention, batch, from)
		total += len(finished)
		if err != nil && ctx.Err() == nil {
			return total, err
		}
		if len(finished) < batch {
			break
		}
		from = slices.MaxFunc(finished, time.Time.Compare)
		select {
		case <-time.After(e.config.Clock().Sub(start)):
		case <-ctx.Done():
		}
	}
	return total, nil
}

// ExpireTx queues that finished keys of an account expire before their retention is over. Unlike the reaper,
// which comes again, it waits for a row that another transaction has locked.
func ExpireTx(tx postgres.Queuer, accountID uuid.UUID, ids []uuid.UUID) {
	tx.Queue("UPDATE idempotency_keys SET"+emptied+` WHERE account_id = $1 AND id = ANY($2) AND expired_at IS NULL`, accountID, ids)
}

// ExpireLost inserts the row of a key that was lost, as an expired one (R17, used for ever),
// unless it exists again.
func (e *Engine) ExpireLost(ctx context.Context, accountID, id uuid.UUID, operation, path string, createdAt time.Time) error {
	inserted, err := e.store.exec(ctx, `
INSERT INTO idempotency_keys (
    account_id, id, operation, request_path, recovery_point, lease_token, runs, updated_at, created_at, finished_at, expired_at, lost
) VALUES ($1, $2, $3, $4, 'finished', $5, 1, now(), $6, now(), now(), true)
ON CONFLICT DO NOTHING`, accountID, id, operation, path, uuid.New(), createdAt)
	if err == nil && !inserted {
		err = errors.New("the key exists again")
	}
	return err
}
