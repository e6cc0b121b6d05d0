package idempotency

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

// store executes the statements of a request. store_background.go has all others.
type store struct {
	pool        *pgxpool.Pool
	lockTimeout time.Duration
}

const (
	acquireTimeout  = 5 * time.Second  // for a pool connection, while the client waits
	databaseTimeout = 15 * time.Second // longer than statement_timeout (R21), so that the server's error arrives first
	releaseTimeout  = 3 * time.Second  // short, because the response waits, and longer than lock_timeout
)

func (s *store) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: no connection: %w", postgres.ErrUnavailable, err)
	}
	return conn, nil
}

func (s *store) withConn(ctx context.Context, statement func(ctx context.Context, conn *pgx.Conn) error) error {
	conn, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	return translateOn(conn.Conn(), statement(ctx, conn.Conn()))
}

func (s *store) queryRow(ctx context.Context, query string, arguments []any, dest ...any) error {
	return s.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, query, arguments...).Scan(dest...)
	})
}

func collect[T any](ctx context.Context, s *store, scan pgx.RowToFunc[T], query string, arguments ...any) (list []T, err error) {
	err = s.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		rows, _ := conn.Query(ctx, query, arguments...) // CollectRows returns its error
		list, err = pgx.CollectRows(rows, scan)
		return err
	})
	return list, err
}

type keyRow struct {
	StoredKey
	Params, Fingerprint []byte
	Token               uuid.UUID
	LockedAt            *time.Time // nil when no run holds the key
	ReadAt              time.Time  // by the database's clock
	Headers             map[string]string
	Body                []byte
}

func (k *keyRow) response() Response { return Response{k.ResponseCode, k.Headers, k.Body} }

func (k *keyRow) result() Result {
	return Result{KeyID: k.ID, Attempt: k.Attempt, From: k.Point, To: k.Point}
}

const findSQL = `
SELECT` + statusColumns + `,
       k.request_params, k.params_hash, k.lease_token, k.locked_at, now(), k.response_headers, k.response_body
  FROM idempotency_keys AS k
 WHERE k.account_id = $2 AND k.id = $3`

// find returns a key's row or [ErrNotFound]. The row is never nil.
func (s *store) find(ctx context.Context, accountID, id uuid.UUID) (*keyRow, error) {
	var keys []keyRow
	err := retry(func() (err error) {
		keys, err = collect(ctx, s, pgx.RowToStructByPos[keyRow], findSQL, s.lockTimeout, accountID, id)
		return err
	})
	if err == nil && len(keys) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return &keyRow{}, err
	}
	return &keys[0], nil
}

// claimSQL is the claim (R1). It names no constraint: the second of two claims may meet
// either unique index. On conflict it raises claim_conflict, because the COMMIT queued
// behind it must not execute. Here and below, OR avoids the call of a function that would
// only return true.
const claimSQL = `
WITH claimed AS (
    INSERT INTO idempotency_keys (
        id, account_id, idempotency_key, operation, request_method, request_path, request_params, params_hash,
        recovery_point, lease_token, attempt, locked_at, last_run_at, created_at
    ) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 1, now(), now(), now())
    ON CONFLICT DO NOTHING
    RETURNING locked_at
)
SELECT count(*) = 1 OR idempotency_assert(count(*) = 1, 'claim_conflict'), max(locked_at) FROM claimed`

// notExpiredSQL raises claim_conflict if the key was reaped (R17). Citus accepts no subquery
// in the INSERT of the claim.
const notExpiredSQL = `
SELECT count(*) = 0 OR idempotency_assert(count(*) = 0, 'claim_conflict')
  FROM expired_keys
 WHERE account_id = $1 AND id = $2`

func queueClaim(batch *pgx.Batch, r *execution, point RecoveryPoint) {
	batch.Queue(notExpiredSQL, r.AccountID, r.KeyID)
	queueAsserted(batch, claimSQL, &r.CreatedAt, r.KeyID, r.AccountID, string(r.Key), r.operation,
		r.request.Method, r.request.Path, r.Params, r.fingerprint, string(point), r.token)
}

// whereHeld is the fence (R7). Each commit moves the start of the lease, so a COMMIT that
// arrives after its repetition fails.
const whereHeld = `
     WHERE account_id = $1 AND id = $2
       AND lease_token = $3
       AND recovery_point = $4
       AND locked_at <= $5`

const assertHeld = `
SELECT count(*) = 1 OR idempotency_assert(count(*) = 1, 'lease_lost'), max(locked_at) FROM held`

// fence returns the arguments of a statement with whereHeld.
func (r *execution) fence(more ...any) []any {
	return append([]any{r.AccountID, r.KeyID, r.token, string(r.point), r.leaseStart}, more...)
}

// fenceSQL locks the row for a transaction that reads before it writes.
const fenceSQL = `
WITH held AS (
    SELECT locked_at
      FROM idempotency_keys` + whereHeld + `
       FOR NO KEY UPDATE
)` + assertHeld

// advanceSQL renews the lease from its own time; now() is the beginning of the transaction.
const advanceSQL = `
WITH held AS (
    UPDATE idempotency_keys
       SET recovery_point = $6,
           locked_at      = statement_timestamp(),
           last_error     = NULL` + whereHeld + `
    RETURNING locked_at
)` + assertHeld

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
           response_body    = $8` + whereHeld + `
    RETURNING finished_at AS locked_at
)` + assertHeld

func queueFinish(batch *pgx.Batch, r *execution, response Response, leaseStart *time.Time) {
	headers, _ := json.Marshal(response.Headers) // cannot fail; pgx encodes no map in QueryExecModeExec
	queueAsserted(batch, finishSQL, leaseStart, r.fence(response.Status, string(headers), response.Body)...)
}

// queueAsserted queues a statement that returns the start of the lease.
func queueAsserted(batch *pgx.Batch, query string, leaseStart *time.Time, arguments ...any) {
	batch.Queue(query, arguments...).QueryRow(func(row pgx.Row) error { return row.Scan(nil, leaseStart) })
}

// takeOver leases the key, or returns ErrInProgress if the row has changed (R1). A lease
// that starts later than LockTimeout from now is of a clock that ran ahead, and none (R8).
func (r *execution) takeOver(ctx context.Context) error {
	var start time.Time
	sent := r.clock()
	err := r.engine.store.queryRow(ctx, `
UPDATE idempotency_keys
   SET lease_token        = $3,
       attempt            = attempt + 1,
       locked_at          = now(),
       last_run_at        = now(),
       action_required_at = NULL
 WHERE account_id = $1 AND id = $2
   AND recovery_point = $4
   AND (locked_at IS NULL OR locked_at NOT BETWEEN now() - $5::interval AND now() + $5::interval)
RETURNING attempt, created_at, locked_at`,
		[]any{r.AccountID, r.KeyID, r.token, string(r.point), r.lockTimeout}, &r.Attempt, &r.CreatedAt, &start)
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrInProgress
	}
	if err == nil {
		r.setLease(start, sent)
	}
	return err
}

// release ends the lease early and keeps the recovery point (R11). Of the failed runs it keeps
// the first and the last ten.
func (r *execution) release(ctx context.Context, cause error) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	actionRequired := errors.Is(cause, ErrActionRequired)
	_, err := r.engine.store.exec(ctx, `
UPDATE idempotency_keys
   SET locked_at          = NULL,
       last_error         = $4::text,
       failed_runs        = CASE WHEN $5 THEN failed_runs ELSE coalesce(
                                failed_runs - CASE WHEN jsonb_array_length(failed_runs) > 10 THEN 1 ELSE 11 END, '[]'
                            ) || jsonb_build_array(jsonb_build_object(
                                'at', now(), 'attempt', attempt, 'recovery_point', recovery_point, 'error', $4::text
                            )) END,
       action_required_at = now() + $6::interval,
       needs_review_at    = CASE WHEN NOT $5 THEN needs_review_at END,
       completer_attempt  = CASE WHEN $5 THEN 0 ELSE completer_attempt END
 WHERE account_id = $1 AND id = $2
   AND lease_token = $3
   AND recovery_point <> 'finished'`,
		r.AccountID, r.KeyID, r.token, postgres.Text(cause.Error(), 500), actionRequired, postgres.NowIf(actionRequired))
	if err != nil {
		r.engine.config.Logger.WarnContext(ctx, "idempotency: lease not released, it will expire", "key_id", r.KeyID, "error", err)
	}
}
