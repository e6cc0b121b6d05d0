package idempotency

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

// RecoveryPoint names how far a request has come.
type RecoveryPoint string

// The recovery points of the engine.
const (
	Started  RecoveryPoint = "started" // never committed, because the claim commits with the result of the first step
	Finished RecoveryPoint = "finished"
)

// Response is replayed byte for byte (R14, the same bytes).
type Response struct {
	Status  int // 200 to 499
	Headers map[string]string
	Body    []byte
}

// StoredKey is the public part of a key's row. Its times are the database's.
type StoredKey struct {
	AccountID, ID  uuid.UUID
	Key            Key
	Operation      string
	Path           string
	Point          RecoveryPoint
	Runs           int // so far
	CreatedAt      time.Time
	UpdatedAt      time.Time
	Idle           time.Duration // since UpdatedAt
	FinishedAt     *time.Time    // nil while unfinished
	Leased         bool          // a run holds the key
	ClockAhead     bool          // a time of the key is in the future
	ActionRequired bool          // the last run ended with ErrActionRequired
	LastError      string        // of the last run
	ResponseCode   int           // 0 while unfinished
	Expired        bool          // emptied by the reaper or an operator: only operation, path and times are known
	Lost           bool          // expired, and what the request created is lost
}

// The states of a key.
const (
	StateInProgress     = "in_progress"     // a run holds the key
	StateWaiting        = "waiting"         // unfinished, and no run holds the key
	StateActionRequired = "requires_action" // waiting, and an action is required before the next run
	StateFinished       = "finished"        // the response is stored
	StateExpired        = "expired"         // the key was used, and its row is emptied
)

// State returns the state of the key, which is one of the constants above.
func (k StoredKey) State() string {
	switch {
	case k.Expired:
		return StateExpired
	case k.Point == Finished:
		return StateFinished
	case k.Leased:
		return StateInProgress
	case k.ActionRequired:
		return StateActionRequired
	default:
		return StateWaiting
	}
}

// keyRow is a key's whole row.
type keyRow struct {
	StoredKey
	Params, Fingerprint []byte
	Token               uuid.UUID
	Headers             map[string]string
	Body                []byte
}

func (k *keyRow) response() Response { return Response{k.ResponseCode, k.Headers, k.Body} }

// keyColumns are the fields of StoredKey in their order; $1 is the length of a lease.
const keyColumns = `
       k.account_id, k.id, coalesce(k.idempotency_key, ''), k.operation, k.request_path, k.recovery_point, k.runs,
       k.created_at, k.updated_at, now() - k.updated_at, k.finished_at,
       coalesce(k.locked_at BETWEEN now() - $1::interval AND now() + $1::interval, false),
       greatest(k.created_at, k.updated_at, k.locked_at, k.finished_at) > now() + $1::interval,
       k.action_required_at IS NOT NULL, coalesce(k.last_error, ''), coalesce(k.response_code, 0),
       k.expired_at IS NOT NULL, k.lost`

const findSQL = `
SELECT` + keyColumns + `,
       k.request_params, k.fingerprint, k.lease_token, k.response_headers, k.response_body
  FROM idempotency_keys AS k
 WHERE k.account_id = $2 AND k.id = $3`

// find returns a key's row or [ErrNotFound]. The row is never nil.
func (s *store) find(ctx context.Context, accountID, id uuid.UUID) (*keyRow, error) {
	var key keyRow
	err := s.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		rows, _ := conn.Query(ctx, findSQL, s.leaseDuration, accountID, id) // CollectExactlyOneRow returns its error
		key, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[keyRow])
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	return &key, err
}

// KeyExpiredError means that the key was used and its row is emptied, so it never executes again (R17,
// used for ever).
type KeyExpiredError struct{ Key StoredKey }

func (e *KeyExpiredError) Error() string {
	return "the idempotency key has expired; it was used for " + e.Key.Operation
}

// list returns the keys that a condition selects. The arguments of the condition begin with $2.
func (s *store) list(ctx context.Context, condition string, arguments ...any) ([]StoredKey, error) {
	return postgres.Collect(ctx, s.pool, "list keys", pgx.RowToStructByPos[StoredKey], `
SELECT`+keyColumns+`
  FROM idempotency_keys AS k`+condition, append([]any{s.leaseDuration}, arguments...)...)
}

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
