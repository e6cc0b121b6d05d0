package idempotency

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/internal/postgres"
)

// Every statement that a request runs on idempotency_keys is in this file. Those
// of background work stand in completer.go, reaper.go and status.go.

// claimSQL is the claim (R1). It names no constraint, because the row has two
// unique indexes, and of two claims at once the second may meet either first;
// id is a function of account and key, so both mean the same. It fails as a fence
// does when a row is in the way, because COMMIT may be behind it already.
const claimSQL = `
WITH claimed AS (
    INSERT INTO idempotency_keys (
        id,
        account_id,
        idempotency_key,
        operation,
        request_method,
        request_path,
        request_params,
        params_hash,
        recovery_point,
        lease_token,
        attempt,
        locked_at,
        last_run_at,
        created_at
    ) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 1, now(), now(), $11)
    ON CONFLICT DO NOTHING
    RETURNING locked_at
)
SELECT 1 / count(*), max(locked_at) FROM claimed`

// lookSQL reads a key that may not be there: there is a row in any case, for the
// database's time.
const lookSQL = `
SELECT` + storedColumns + `
  FROM idempotency_keys AS k
       RIGHT JOIN (SELECT) AS always
       ON k.account_id = $1
      AND k.id = $2`

// storedColumns are what scanKey reads; $3 is the length of a lease.
const storedColumns = `
       now(),
       k.account_id,
       k.id,
       k.idempotency_key,
       k.operation,
       k.request_path,
       k.request_params,
       k.params_hash,
       k.recovery_point,
       k.lease_token,
       k.locked_at,
       coalesce(k.locked_at > now() - $3::interval, false),
       k.attempt,
       k.created_at,
       k.last_run_at,
       k.finished_at,
       k.needs_review_at,
       coalesce(k.last_error, ''),
       coalesce(k.response_code, 0),
       coalesce(k.response_headers, '{}'),
       k.response_body`

// takeoverSQL gives the key to a new run, unless somebody was faster (R7, R8).
const takeoverSQL = `
UPDATE idempotency_keys
   SET lease_token = $4,
       attempt     = attempt + 1,
       locked_at   = now(),
       last_run_at = now()
 WHERE account_id = $1
   AND id = $2
   AND recovery_point = $3
   AND coalesce(locked_at <= now() - $5::interval, true)
RETURNING attempt, locked_at`

// The three statements below are the fence: each fails with division_by_zero
// when the run no longer holds the key. An error, and not an empty result,
// because COMMIT is already on its way behind it and must not be executed (R7).
//
// Beside token and recovery point they name the lease's start as this run knows
// it. Each commit moves it, so a transaction of this run that was taken for lost
// cannot come through after the one that took its place.

// fenceSQL locks the row for a transaction that reads before it writes.
const fenceSQL = `
WITH held AS (
    SELECT locked_at
      FROM idempotency_keys
     WHERE account_id = $1
       AND id = $2
       AND lease_token = $3
       AND recovery_point = $4
       AND locked_at <= $5
       FOR NO KEY UPDATE
)
SELECT 1 / count(*), max(locked_at) FROM held`

// advanceSQL moves the recovery point and renews the lease: from this moment,
// not from the transaction's beginning, which is what now() would say.
const advanceSQL = `
WITH held AS (
    UPDATE idempotency_keys
       SET recovery_point = $6,
           locked_at      = clock_timestamp(),
           last_error     = NULL
     WHERE account_id = $1
       AND id = $2
       AND lease_token = $3
       AND recovery_point = $4
       AND locked_at <= $5
    RETURNING locked_at
)
SELECT 1 / count(*), max(locked_at) FROM held`

// finishSQL stores the response, lets go of the key and of any wish for review.
const finishSQL = `
WITH held AS (
    UPDATE idempotency_keys
       SET recovery_point   = 'finished',
           locked_at        = NULL,
           last_error       = NULL,
           finished_at      = now(),
           needs_review_at  = NULL,
           response_code    = $6,
           response_headers = $7,
           response_body    = $8
     WHERE account_id = $1
       AND id = $2
       AND lease_token = $3
       AND recovery_point = $4
       AND locked_at <= $5
    RETURNING now() AS locked_at
)
SELECT 1 / count(*), max(locked_at) FROM held`

// releaseSQL gives the lease back and keeps the recovery point (R11).
const releaseSQL = `
UPDATE idempotency_keys
   SET locked_at  = NULL,
       last_error = $4
 WHERE account_id = $1
   AND id = $2
   AND lease_token = $3
   AND recovery_point <> 'finished'`

// scanFence reads the row of a fence. since becomes the new start of the lease.
func scanFence(row pgx.Row, since *time.Time) error {
	var one int
	err := row.Scan(&one, since)
	if postgres.SQLState(err) == postgres.DivisionByZero {
		return ErrLeaseLost
	}
	return err
}

// storedKey is a row as lookSQL reads it.
type storedKey struct {
	accountID   uuid.UUID
	id          uuid.UUID
	key         Key
	operation   string
	path        string
	params      []byte
	fingerprint []byte
	point       RecoveryPoint
	token       uuid.UUID
	lockedAt    *time.Time // nil when nobody holds the key
	leased      bool       // and the lease has not run out
	attempt     int
	createdAt   time.Time
	lastRunAt   time.Time
	finishedAt  *time.Time
	reviewAt    *time.Time // nil when no person is needed
	lastError   string
	readAt      time.Time // by the database's clock, as are the others
	response    Response
}

// result is a Result of a key that nobody ran just now.
func (k *storedKey) result() Result {
	return Result{KeyID: k.id, Attempt: k.attempt, From: k.point, To: k.point}
}

// status is the key as those see it who only look on.
func (k *storedKey) status() Status {
	return Status{
		AccountID:     k.accountID,
		ID:            k.id,
		Key:           k.key,
		Operation:     k.operation,
		Path:          k.path,
		Point:         k.point,
		Attempt:       k.attempt,
		CreatedAt:     k.createdAt,
		LastRunAt:     k.lastRunAt,
		FinishedAt:    k.finishedAt,
		NeedsReviewAt: k.reviewAt,
		Leased:        k.leased,
		LastError:     k.lastError,
		Response:      k.response.Status,
	}
}

// scanKey reads a row of storedColumns.
func scanKey(row pgx.Row) (*storedKey, error) {
	var k storedKey
	var headers []byte
	err := row.Scan(&k.readAt, &k.accountID, &k.id, &k.key, &k.operation, &k.path, &k.params, &k.fingerprint, &k.point, &k.token,
		&k.lockedAt, &k.leased, &k.attempt, &k.createdAt, &k.lastRunAt, &k.finishedAt, &k.reviewAt, &k.lastError,
		&k.response.Status, &headers, &k.response.Body)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(headers, &k.response.Headers); err != nil {
		return nil, fmt.Errorf("stored headers of key %s: %w", k.id, err)
	}
	return &k, nil
}

// scanLook reads the row of lookSQL. Where there is no key, it returns nil for it.
func scanLook(rows pgx.Rows) (stored *storedKey, now time.Time, err error) {
	defer rows.Close()
	if !rows.Next() {
		return nil, time.Time{}, rows.Err()
	}
	columns := make([]any, len(rows.RawValues()))
	columns[0] = &now
	if err := rows.Scan(columns...); err != nil {
		return nil, time.Time{}, err
	}
	if rows.RawValues()[1] != nil {
		stored, err = scanKey(rows)
	}
	return stored, now, err
}

// lookup reads the key's row, or returns [ErrNotFound].
func (e *Engine) lookup(ctx context.Context, accountID, id uuid.UUID) (*storedKey, error) {
	var stored *storedKey
	err := e.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, lookSQL, accountID, id, e.lockTimeout)
		if err != nil {
			return err
		}
		if stored, _, err = scanLook(rows); err == nil && stored == nil {
			err = ErrNotFound
		}
		return err
	})
	return stored, err
}

// renew moves the start of the lease, unless the run no longer holds the key:
// then it returns ErrLeaseLost.
func (e *Engine) renew(ctx context.Context, x *execution) error {
	return e.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		arguments := append(x.held(), string(x.point))
		return scanFence(conn.QueryRow(ctx, advanceSQL, arguments...), &x.lease.since)
	})
}

// release gives the lease back, so that the next run need not wait for its end.
// Failing to do so costs only that wait.
func (e *Engine) release(ctx context.Context, x *execution, cause error) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	err := e.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, releaseSQL, x.run.AccountID, x.run.KeyID, x.lease.token, lastError(cause))
		return err
	})
	if err != nil {
		e.logger.WarnContext(ctx, "idempotency: lease not given back, it will run out",
			"key_id", x.run.KeyID, "error", err)
	}
}

// lastError is cause as the last_error column takes it.
func lastError(cause error) string {
	const limit = 500 // characters, as the column's CHECK says
	text := []rune(strings.ToValidUTF8(strings.ReplaceAll(cause.Error(), "\x00", ""), "?"))
	return string(text[:min(len(text), limit)])
}
