package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Status is the public part of a key's row. Times are by the database's clock.
type Status struct {
	AccountID      uuid.UUID
	ID             uuid.UUID
	Key            Key
	Operation      string
	Path           string // of the request
	Point          RecoveryPoint
	Attempt        int // runs so far
	CreatedAt      time.Time
	LastRunAt      time.Time
	Idle           time.Duration // since LastRunAt
	FinishedAt     *time.Time    // nil while unfinished
	NeedsReviewAt  *time.Time    // nil unless the completer has marked the key
	Leased         bool          // a run holds the key
	ClockAhead     bool          // a time of the key is in the future, because a clock ran ahead
	ActionRequired bool          // the last run ended with ErrActionRequired
	LastError      string        // of the last run, "" if it had none
	ResponseStatus int           // of the stored response, 0 while unfinished
}

// The states of a key, see [Status.State].
const (
	StateInProgress     = "in_progress"     // a run holds the key
	StateWaiting        = "waiting"         // unfinished, and no run holds the key
	StateActionRequired = "requires_action" // the same, and an action outside of the service is required first
	StateNeedsReview    = "needs_review"    // the completer has made its last attempt
	StateFinished       = "finished"        // the response is stored
)

// State returns one of the states above.
func (s Status) State() string {
	switch {
	case s.Point == Finished:
		return StateFinished
	case s.NeedsReviewAt != nil:
		return StateNeedsReview
	case s.Leased:
		return StateInProgress
	case s.ActionRequired:
		return StateActionRequired
	default:
		return StateWaiting
	}
}

// NextLeaseEnd returns when the lease of a run would end that takes the key at the time of
// the status, by the database's clock (R8).
func (e *Engine) NextLeaseEnd(key Status) time.Time {
	return key.LastRunAt.Add(key.Idle + e.store.lockTimeout)
}

// statusColumns are the columns of Status.fields; $1 is the length of a lease.
const statusColumns = `
       k.account_id,
       k.id,
       k.idempotency_key,
       k.operation,
       k.request_path,
       k.recovery_point,
       k.attempt,
       k.created_at,
       k.last_run_at,
       now() - k.last_run_at,
       k.finished_at,
       k.needs_review_at,
       coalesce(k.locked_at BETWEEN now() - $1::interval AND now() + $1::interval, false),
       greatest(k.created_at, k.last_run_at, k.locked_at, k.finished_at) > now() + $1::interval,
       k.action_required_at IS NOT NULL,
       coalesce(k.last_error, ''),
       coalesce(k.response_code, 0)`

func (s *Status) fields() []any {
	return []any{
		&s.AccountID, &s.ID, &s.Key, &s.Operation, &s.Path, &s.Point, &s.Attempt, &s.CreatedAt, &s.LastRunAt, &s.Idle,
		&s.FinishedAt, &s.NeedsReviewAt, &s.Leased, &s.ClockAhead, &s.ActionRequired, &s.LastError, &s.ResponseStatus,
	}
}

// Status returns one key of the account, or [ErrNotFound].
func (e *Engine) Status(ctx context.Context, accountID, id uuid.UUID) (Status, error) {
	stored, err := e.store.find(ctx, accountID, id)
	return stored.Status, err
}

// Lookup returns a key and its stored response, if any. A reaped key is a
// [*KeyExpiredError], an unused key [ErrNotFound].
func (e *Engine) Lookup(ctx context.Context, accountID uuid.UUID, key Key) (Status, Response, error) {
	id := KeyID(accountID, key)
	stored, err := e.store.find(ctx, accountID, id)
	if errors.Is(err, ErrNotFound) {
		err = e.store.keyExpired(ctx, accountID, id, key)
	}
	return stored.Status, stored.response, err
}

// Statuses returns existing keys by id, for pairs of account and id.
func (e *Engine) Statuses(ctx context.Context, accountIDs, ids []uuid.UUID) (map[uuid.UUID]Status, error) {
	list, err := e.store.statuses(ctx, statusesSQL, accountIDs, ids)
	byID := make(map[uuid.UUID]Status, len(list))
	for _, status := range list {
		byID[status.ID] = status
	}
	return byID, err
}

// Stuck lists up to limit unfinished keys of all accounts, the longest idle first:
// keys that need review, and keys without a run for longer than grace that require no
// action. A last run in the future is none.
func (e *Engine) Stuck(ctx context.Context, grace time.Duration, limit int) ([]Status, error) {
	return e.store.statuses(ctx, stuckSQL, grace, limit)
}

// Find returns the key with an id or, if there is none, those with a client's key, of
// one account or, for uuid.Nil, of all. So the name of a client's key cannot hide
// another key, which the log and all lists name by its id.
func (e *Engine) Find(ctx context.Context, accountID uuid.UUID, idOrKey string) ([]Status, error) {
	id, _ := uuid.Parse(idOrKey) // otherwise uuid.Nil, which no key has
	keys, err := e.store.statuses(ctx, byKeySQL, id, idOrKey, accountID)
	if len(keys) > 0 && keys[0].ID == id {
		keys = keys[:1]
	}
	return keys, err
}

// Requeue returns a key that needs review to the completer, with all attempts. It does
// not change a key that none of the operations can continue (R18).
func (e *Engine) Requeue(ctx context.Context, accountID, id uuid.UUID, operations []Operation) error {
	return e.store.exec(ctx, requeueSQL, accountID, id, knownSteps(operations))
}

// Expire makes a key whose row was lost an expired key (R17).
func (e *Engine) Expire(ctx context.Context, accountID, id uuid.UUID, operation, path string, createdAt time.Time) error {
	if err := e.store.exec(ctx, expireSQL, accountID, id, operation, path, createdAt); err != nil {
		return fmt.Errorf("expire key: %w", err)
	}
	return nil
}
