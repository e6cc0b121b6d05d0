package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/internal/postgres"
)

// Status is a key as somebody sees it who does not run it.
type Status struct {
	AccountID     uuid.UUID
	ID            uuid.UUID
	Key           Key
	Operation     string
	Path          string // of the request
	Point         RecoveryPoint
	Attempt       int // runs so far
	CreatedAt     time.Time
	LastRunAt     time.Time
	FinishedAt    *time.Time // nil while unfinished
	NeedsReviewAt *time.Time // when the completer gave it up, nil when it did not
	Leased        bool       // somebody works on it now
	LastError     string     // of the last run, "" when it had none
	Response      int        // the stored response's status, 0 while unfinished
}

// statusColumns are what scanStatus reads; $1 is the length of a lease.
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
       k.finished_at,
       k.needs_review_at,
       coalesce(k.locked_at > now() - $1::interval, false),
       coalesce(k.last_error, ''),
       coalesce(k.response_code, 0)`

func scanStatus(row pgx.CollectableRow) (Status, error) {
	var s Status
	err := row.Scan(&s.AccountID, &s.ID, &s.Key, &s.Operation, &s.Path, &s.Point, &s.Attempt, &s.CreatedAt, &s.LastRunAt,
		&s.FinishedAt, &s.NeedsReviewAt, &s.Leased, &s.LastError, &s.Response)
	return s, err
}

const statusSQL = `
SELECT` + statusColumns + `
  FROM idempotency_keys AS k
 WHERE k.account_id = $2
   AND k.id = $3`

// Status returns one key of the account, or [ErrNotFound].
func (e *Engine) Status(ctx context.Context, accountID, id uuid.UUID) (Status, error) {
	var status Status
	err := e.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, statusSQL, e.lockTimeout, accountID, id)
		if err != nil {
			return err
		}
		status, err = pgx.CollectExactlyOneRow(rows, scanStatus)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNotFound
		}
		return err
	})
	return status, err
}

// stuckSQL lists what nobody works on any more, in the order of the index that
// the completer uses, and what it has given up.
const stuckSQL = `
SELECT` + statusColumns + `
  FROM idempotency_keys AS k
 WHERE k.finished_at IS NULL
   AND (
        k.needs_review_at IS NOT NULL
        OR (
            k.needs_review_at IS NULL
            AND k.last_run_at <= now() - $2::interval
            AND coalesce(k.locked_at <= now() - $1::interval, true)
        )
   )
 ORDER BY k.last_run_at
 LIMIT $3`

// Stuck lists up to limit unfinished keys of all accounts, the longest idle
// first: those whose lease is over and whose last run is older than grace, and
// those that need review.
func (e *Engine) Stuck(ctx context.Context, grace time.Duration, limit int) ([]Status, error) {
	return e.statuses(ctx, stuckSQL, e.lockTimeout, grace, limit)
}

// statusesSQL reads keys by account and id.
const statusesSQL = `
SELECT` + statusColumns + `
  FROM idempotency_keys AS k
  JOIN unnest($2::uuid[], $3::uuid[]) AS wanted (account_id, id)
    ON wanted.account_id = k.account_id
   AND wanted.id = k.id`

// Statuses returns keys by their ids. Keys that do not exist are left out. The
// slices name the account and the id of each key.
func (e *Engine) Statuses(ctx context.Context, accountIDs, ids []uuid.UUID) (map[uuid.UUID]Status, error) {
	list, err := e.statuses(ctx, statusesSQL, e.lockTimeout, accountIDs, ids)
	byID := make(map[uuid.UUID]Status, len(list))
	for _, status := range list {
		byID[status.ID] = status
	}
	return byID, err
}

// findSQL looks in each account, in two ways, so that every look is one of an
// index (R20).
const findSQL = `
SELECT` + statusColumns + `
  FROM accounts AS a
       CROSS JOIN LATERAL (
           SELECT *
             FROM idempotency_keys
            WHERE account_id = a.id
              AND id = $2
            UNION ALL
           SELECT *
             FROM idempotency_keys
            WHERE account_id = a.id
              AND idempotency_key = $3
       ) AS k
 WHERE $4::uuid IS NULL
    OR a.id = $4
 ORDER BY k.created_at
 LIMIT 10`

// Find returns the keys that an operator may mean: by the row's id or by the
// client's key, in one account or, when that is uuid.Nil, in any. A client's
// key is unique within an account only, so there may be several.
func (e *Engine) Find(ctx context.Context, accountID uuid.UUID, idOrKey string) ([]Status, error) {
	var id, account *uuid.UUID
	if parsed, err := uuid.Parse(idOrKey); err == nil {
		id = &parsed
	}
	if accountID != uuid.Nil {
		account = &accountID
	}
	return e.statuses(ctx, findSQL, e.lockTimeout, id, idOrKey, account)
}

func (e *Engine) statuses(ctx context.Context, query string, arguments ...any) ([]Status, error) {
	rows, err := e.pool.Query(ctx, query, arguments...)
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", postgres.Translate(err))
	}
	list, err := pgx.CollectRows(rows, scanStatus)
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", postgres.Translate(err))
	}
	return list, nil
}
