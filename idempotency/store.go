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

// The statements that a request executes. store_background.go has all others.

type store struct {
	pool        *pgxpool.Pool
	lockTimeout time.Duration
}

const (
	// acquireTimeout bounds the wait for a pool connection: the response must arrive
	// while the client waits.
	acquireTimeout = 5 * time.Second

	// databaseTimeout bounds one exchange. It is longer than statement_timeout (R21),
	// so that the server's error arrives first.
	databaseTimeout = 15 * time.Second

	// releaseTimeout is short, because the response waits, and longer than
	// lock_timeout.
	releaseTimeout = 3 * time.Second
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

type storedKey struct {
	Status
	params      []byte
	fingerprint []byte
	token       uuid.UUID
	lockedAt    *time.Time // nil when no run holds the key
	readAt      time.Time  // when it was read, by the database's clock
	response    Response
}

func (k *storedKey) result() Result {
	return Result{KeyID: k.ID, Attempt: k.Attempt, From: k.Point, To: k.Point}
}

const findSQL = `
SELECT` + statusColumns + `,
       k.request_params,
       k.params_hash,
       k.lease_token,
       k.locked_at,
       now(),
       k.response_headers,
       k.response_body
  FROM idempotency_keys AS k
 WHERE k.account_id = $2
   AND k.id = $3`

// find reads a key's row, or returns [ErrNotFound]. The key is not nil.
func (s *store) find(ctx context.Context, accountID, id uuid.UUID) (*storedKey, error) {
	k := &storedKey{}
	err := retry(func() error {
		return s.queryRow(ctx, findSQL, []any{s.lockTimeout, accountID, id}, append(k.fields(),
			&k.params, &k.fingerprint, &k.token, &k.lockedAt, &k.readAt, &k.response.Headers, &k.response.Body)...)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	k.response.Status = k.ResponseStatus
	return k, err
}

// claimSQL is the claim (R1). It names no constraint: the second of two concurrent
// claims may meet either unique index, and both mean the same key. On conflict it
// raises division_by_zero, like the fence.
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
    ) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 1, now(), now(), now())
    ON CONFLICT DO NOTHING
    RETURNING locked_at
)
SELECT 1 / count(*), max(locked_at) FROM claimed`

// notExpiredSQL raises division_by_zero if the key was reaped (R17). It is apart from
// the claim, because a distributed PostgreSQL accepts no subquery in an INSERT.
const notExpiredSQL = `
SELECT 1 / (1 - count(*))
  FROM expired_keys
 WHERE account_id = $1
   AND id = $2`

func queueClaim(batch *pgx.Batch, r *run, point RecoveryPoint, since *time.Time) {
	batch.Queue(notExpiredSQL, r.AccountID, r.KeyID).QueryRow(func(row pgx.Row) error { return scanFenced(row) })
	queueFenced(batch, claimSQL, since, r.KeyID, r.AccountID, string(r.Key), r.operation,
		r.claim.Method, r.claim.Path, r.Params, r.fingerprint, string(point), r.token)
}

// fence is the condition of a fenced statement (R7). Each commit moves the start of
// the lease, so a COMMIT that arrives after its repetition fails.
type fence struct {
	accountID, id uuid.UUID
	token         uuid.UUID
	point         RecoveryPoint
	since         time.Time
}

func (f fence) arguments(more ...any) []any {
	return append([]any{f.accountID, f.id, f.token, string(f.point), f.since}, more...)
}

// The three fenced statements raise division_by_zero if the run does not hold the key.
// An empty result would not stop the COMMIT, which is queued behind them.

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

// advanceSQL moves the recovery point and renews the lease. statement_timestamp() is
// the receipt of the statement, also in a batch: after the run sent it (R8), and later
// than $5. now() would be the beginning of the transaction.
const advanceSQL = `
WITH held AS (
    UPDATE idempotency_keys
       SET recovery_point = $6,
           locked_at      = statement_timestamp(),
           last_error     = NULL
     WHERE account_id = $1
       AND id = $2
       AND lease_token = $3
       AND recovery_point = $4
       AND locked_at <= $5
    RETURNING locked_at
)
SELECT 1 / count(*), max(locked_at) FROM held`

// renew moves the start of the lease, or returns ErrLeaseLost.
func (s *store) renew(ctx context.Context, f fence) (since time.Time, err error) {
	err = s.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return scanFenced(conn.QueryRow(ctx, advanceSQL, f.arguments(string(f.point))...), &since)
	})
	return since, err
}

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
    RETURNING finished_at AS locked_at
)
SELECT 1 / count(*), max(locked_at) FROM held`

func queueFinish(batch *pgx.Batch, f fence, response Response, since *time.Time) {
	headers, _ := json.Marshal(response.Headers) // cannot fail; pgx encodes no map in QueryExecModeExec
	queueFenced(batch, finishSQL, since, f.arguments(response.Status, string(headers), response.Body)...)
}

// queueFenced queues the claim or a fenced statement. since becomes the start of the
// lease.
func queueFenced(batch *pgx.Batch, query string, since *time.Time, arguments ...any) {
	batch.Queue(query, arguments...).QueryRow(func(row pgx.Row) error { return scanFenced(row, since) })
}

func scanFenced(row pgx.Row, more ...any) error {
	var one int
	err := row.Scan(append([]any{&one}, more...)...)
	if postgres.SQLState(err) == postgres.DivisionByZero {
		return ErrLeaseLost
	}
	return err
}

// takeOver leases the key, or returns ErrInProgress if the row has changed (R7, R8). A
// lease that starts later than LockTimeout from now is none, because a clock that ran
// ahead has set it. A wait for the row, during which now() stands still, is shorter.
func (s *store) takeOver(ctx context.Context, f fence) (attempt int, createdAt, since time.Time, err error) {
	err = s.queryRow(ctx, `
UPDATE idempotency_keys
   SET lease_token        = $3,
       attempt            = attempt + 1,
       locked_at          = now(),
       last_run_at        = now(),
       action_required_at = NULL
 WHERE account_id = $1
   AND id = $2
   AND recovery_point = $4
   AND (locked_at IS NULL OR locked_at NOT BETWEEN now() - $5::interval AND now() + $5::interval)
RETURNING attempt, created_at, locked_at`,
		[]any{f.accountID, f.id, f.token, string(f.point), s.lockTimeout}, &attempt, &createdAt, &since)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrInProgress
	}
	return attempt, createdAt, since, err
}

// release keeps the recovery point (R11).
func (s *store) release(ctx context.Context, f fence, cause error) error {
	const limit = 500 // characters, as the column's CHECK requires
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	actionRequired := errors.Is(cause, ErrActionRequired)
	return s.exec(ctx, `
UPDATE idempotency_keys
   SET locked_at          = NULL,
       last_error         = $4,
       action_required_at = now() + $6::interval,
       needs_review_at    = CASE WHEN NOT $5 THEN needs_review_at END,
       completer_attempt  = CASE WHEN $5 THEN 0 ELSE completer_attempt END
 WHERE account_id = $1
   AND id = $2
   AND lease_token = $3
   AND recovery_point <> 'finished'`,
		f.accountID, f.id, f.token, postgres.Text(cause.Error(), limit), actionRequired, postgres.NowIf(actionRequired))
}
