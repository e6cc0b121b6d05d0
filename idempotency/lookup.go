package idempotency

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

// Lookup returns a key with its response, or [ErrNotFound].
func (e *Engine) Lookup(ctx context.Context, accountID uuid.UUID, key Key) (StoredKey, Response, error) {
	stored, err := e.store.find(ctx, accountID, KeyID(accountID, key))
	stored.Key = key // the row of an expired key does not have it
	return stored.StoredKey, stored.response(), err
}

// NextLeaseEnd returns when the lease of a run that takes the key now would end. UpdatedAt plus Idle is the
// database's time at which the key was read.
func (e *Engine) NextLeaseEnd(key StoredKey) time.Time {
	return key.UpdatedAt.Add(key.Idle + e.config.LeaseDuration)
}

// Unfinished lists all unfinished keys, the oldest first.
func (e *Engine) Unfinished(ctx context.Context) ([]StoredKey, error) {
	return e.store.list(ctx, `
 WHERE k.finished_at IS NULL
 ORDER BY k.created_at, k.id`)
}

// Find returns the keys of the accounts with this id, or with this client's key. They are found by
// their derived ids, also after they have expired.
func (e *Engine) Find(ctx context.Context, accountIDs []uuid.UUID, idOrKey string) ([]StoredKey, error) {
	id, _ := uuid.Parse(idOrKey) // otherwise uuid.Nil, which no key has
	ids := []uuid.UUID{id}
	for _, accountID := range accountIDs {
		ids = append(ids, KeyID(accountID, Key(idOrKey)))
	}
	keys, err := e.store.list(ctx, " WHERE k.account_id = ANY($2) AND k.id = ANY($3)", accountIDs, ids)
	for i := range keys {
		if k := &keys[i]; k.ID == KeyID(k.AccountID, Key(idOrKey)) {
			k.Key = Key(idOrKey) // also of an expired one
		}
	}
	return keys, err
}

// Stats counts the keys of all accounts. An age is 0 if there is no such key.
type Stats struct {
	Unfinished       []Unfinished
	OldestUnfinished time.Duration // since it was claimed
	OldestFinished   time.Duration
}

// Unfinished counts the keys of an operation at a recovery point, without those that require an action.
type Unfinished struct {
	Operation string
	Point     RecoveryPoint
	Keys      int
	Old       int // claimed more than an hour ago
}

// unfinishedSQL also counts a key that a clock which ran ahead has created as old, so that it raises an alert.
const unfinishedSQL = `
SELECT operation,
       recovery_point,
       count(*),
       count(*) FILTER (WHERE created_at NOT BETWEEN now() - interval '1 hour' AND now() + interval '1 hour')
  FROM idempotency_keys
 WHERE finished_at IS NULL AND action_required_at IS NULL
 GROUP BY operation, recovery_point
 ORDER BY operation, recovery_point`

const oldestSQL = `
SELECT (
           SELECT greatest(now() - min(created_at), max(created_at) - now(), interval '0')
             FROM idempotency_keys
            WHERE finished_at IS NULL
       ),
       (
           SELECT greatest(now() - min(finished_at), interval '0')
             FROM idempotency_keys
            WHERE finished_at IS NOT NULL AND expired_at IS NULL
       )`

// ReadStats counts the keys in one round trip.
func ReadStats(ctx context.Context, pool *pgxpool.Pool) (stats Stats, err error) {
	batch := &pgx.Batch{}
	batch.Queue(unfinishedSQL).Query(func(rows pgx.Rows) (err error) {
		stats.Unfinished, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Unfinished])
		return err
	})
	batch.Queue(oldestSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&stats.OldestUnfinished, &stats.OldestFinished) })
	err = pool.SendBatch(ctx, batch).Close()
	return stats, postgres.Translate(err)
}
