package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

// StoredKey is the public part of a key's row, by the database's clock.
type StoredKey struct {
	AccountID, ID  uuid.UUID
	Key            Key
	Operation      string
	Path           string
	Point          RecoveryPoint
	Attempt        int
	CreatedAt      time.Time
	LastRunAt      time.Time
	Idle           time.Duration // since LastRunAt
	FinishedAt     *time.Time    // nil while unfinished
	NeedsReviewAt  *time.Time
	Leased         bool   // a run holds the key
	ClockAhead     bool   // a time of the key is in the future
	ActionRequired bool   // the last run ended with ErrActionRequired
	LastError      string // of the last run
	ResponseCode   int    // 0 while unfinished
}

// The states of a key.
const (
	StateInProgress     = "in_progress"     // a run holds the key
	StateWaiting        = "waiting"         // unfinished, and no run holds the key
	StateActionRequired = "requires_action" // the same, and an action is required first
	StateNeedsReview    = "needs_review"    // the completer has made its last attempt
	StateFinished       = "finished"        // the response is stored
)

// State returns one of them.
func (k StoredKey) State() string {
	switch {
	case k.Point == Finished:
		return StateFinished
	case k.NeedsReviewAt != nil:
		return StateNeedsReview
	case k.Leased:
		return StateInProgress
	case k.ActionRequired:
		return StateActionRequired
	default:
		return StateWaiting
	}
}

// NextLeaseEnd returns when the lease of a run that takes the key now would end (R8).
func (e *Engine) NextLeaseEnd(key StoredKey) time.Time {
	return key.LastRunAt.Add(key.Idle + e.store.lockTimeout)
}

// statusColumns are the fields of StoredKey in their order; $1 is the length of a lease.
const statusColumns = `
       k.account_id, k.id, k.idempotency_key, k.operation, k.request_path, k.recovery_point, k.attempt,
       k.created_at, k.last_run_at, now() - k.last_run_at, k.finished_at, k.needs_review_at,
       coalesce(k.locked_at BETWEEN now() - $1::interval AND now() + $1::interval, false),
       greatest(k.created_at, k.last_run_at, k.locked_at, k.finished_at) > now() + $1::interval,
       k.action_required_at IS NOT NULL, coalesce(k.last_error, ''), coalesce(k.response_code, 0)`

func (e *Engine) list(ctx context.Context, query string, arguments ...any) ([]StoredKey, error) {
	list, err := collect(ctx, e.store, pgx.RowToStructByPos[StoredKey], query, append([]any{e.store.lockTimeout}, arguments...)...)
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	return list, nil
}

// Key returns one key of the account, or [ErrNotFound].
func (e *Engine) Key(ctx context.Context, accountID, id uuid.UUID) (StoredKey, error) {
	stored, err := e.store.find(ctx, accountID, id)
	return stored.StoredKey, err
}

// Lookup returns a key and its response, a [*KeyExpiredError] or [ErrNotFound].
func (e *Engine) Lookup(ctx context.Context, accountID uuid.UUID, key Key) (StoredKey, Response, error) {
	id := KeyID(accountID, key)
	stored, err := e.store.find(ctx, accountID, id)
	if errors.Is(err, ErrNotFound) {
		err = e.store.keyExpired(ctx, accountID, id, key)
	}
	return stored.StoredKey, stored.response(), err
}

// Keys returns those that exist, by id.
func (e *Engine) Keys(ctx context.Context, accountIDs, ids []uuid.UUID) (map[uuid.UUID]StoredKey, error) {
	list, err := e.list(ctx, statusesSQL, accountIDs, ids)
	byID := make(map[uuid.UUID]StoredKey, len(list))
	for _, status := range list {
		byID[status.ID] = status
	}
	return byID, err
}

// Stuck lists the abandoned keys and those that need review, the longest idle first.
func (e *Engine) Stuck(ctx context.Context, grace time.Duration, limit int) ([]StoredKey, error) {
	return e.list(ctx, stuckSQL, grace, limit)
}

// Find returns the key with an id or, if there is none, those with a client's key, so that no
// client hides a key. accountID uuid.Nil means all accounts.
func (e *Engine) Find(ctx context.Context, accountID uuid.UUID, idOrKey string) ([]StoredKey, error) {
	id, _ := uuid.Parse(idOrKey) // otherwise uuid.Nil, which no key has
	keys, err := e.list(ctx, byKeySQL, id, idOrKey, accountID)
	if len(keys) > 0 && keys[0].ID == id {
		keys = keys[:1]
	}
	return keys, err
}

// Lost returns the expired keys of the accounts with this id or client's key whose rows were lost
// ([Engine.Expire]): their account, id, operation and age.
func (e *Engine) Lost(ctx context.Context, accountIDs []uuid.UUID, idOrKey string) ([]StoredKey, error) {
	id, _ := uuid.Parse(idOrKey)
	ids := []uuid.UUID{id}
	for _, accountID := range accountIDs {
		ids = append(ids, KeyID(accountID, Key(idOrKey)))
	}
	return collect(ctx, e.store, pgx.RowToStructByNameLax[StoredKey], `
SELECT account_id, id, operation, created_at
  FROM expired_keys
 WHERE account_id = ANY($1) AND id = ANY($2) AND lost`, accountIDs, ids)
}

// FailedRun is a run that ended without a final outcome.
type FailedRun struct {
	At      time.Time     `json:"at"`
	Attempt int           `json:"attempt"` // its number
	Point   RecoveryPoint `json:"recovery_point"`
	Error   string        `json:"error"`
}

// FailedRuns returns the first failed run of a key and the last ten. A run whose process died is
// not among them.
func (e *Engine) FailedRuns(ctx context.Context, accountID, id uuid.UUID) (runs []FailedRun, err error) {
	err = e.store.queryRow(ctx, "SELECT failed_runs FROM idempotency_keys WHERE account_id = $1 AND id = $2", []any{accountID, id}, &runs)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil // reaped
	}
	return runs, err
}

// Requeue returns a key that needs review to the completer, with all attempts, if one of the
// operations can continue it (R18).
func (e *Engine) Requeue(ctx context.Context, accountID, id uuid.UUID, operations []Operation) error {
	_, err := e.store.exec(ctx, requeueSQL, accountID, id, knownSteps(operations))
	return err
}

// Expire makes a key whose row was lost an expired key (R17).
func (e *Engine) Expire(ctx context.Context, accountID, id uuid.UUID, operation, path string, createdAt time.Time) error {
	_, err := e.store.exec(ctx, expireSQL, accountID, id, operation, path, createdAt)
	return err
}

// Stats counts the keys of all accounts. An age is 0 if there is no such key.
type Stats struct {
	Unfinished []Unfinished

	OldestActionRequired time.Duration // since it was claimed

	NeedsReview int

	OldestFinished time.Duration
}

// Unfinished counts the keys of an operation at a recovery point, without those that need
// review or an action.
type Unfinished struct {
	Operation string
	Point     RecoveryPoint
	Keys      int
	Oldest    time.Duration // since it was claimed

	OldestUnattempted time.Duration // since the last run of a key without the completer's attempt
}

// ReadStats counts the keys in one round trip.
func ReadStats(ctx context.Context, pool *pgxpool.Pool) (stats Stats, err error) {
	batch := &pgx.Batch{}
	batch.Queue(unfinishedSQL).Query(func(rows pgx.Rows) error {
		var err error
		stats.Unfinished, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Unfinished])
		return err
	})
	for query, value := range map[string]any{
		oldestActionRequiredSQL: &stats.OldestActionRequired,
		needsReviewSQL:          &stats.NeedsReview,
		oldestFinishedSQL:       &stats.OldestFinished,
	} {
		batch.Queue(query).QueryRow(func(row pgx.Row) error { return row.Scan(value) })
	}
	err = pool.SendBatch(ctx, batch).Close()
	return stats, postgres.Translate(err)
}
