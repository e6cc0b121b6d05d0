package console

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
)

// All statements of this package are in this file. All but makeOlder only read.

// accountOf returns the account of an API key.
func accountOf(ctx context.Context, pool *pgxpool.Pool, apiKey string) (uuid.UUID, error) {
	hash := sha256.Sum256([]byte(apiKey))
	var account uuid.UUID
	err := pool.QueryRow(ctx, `
SELECT account_id
  FROM api_keys
 WHERE key_hash = $1
   AND revoked_at IS NULL`, hash[:]).Scan(&account)
	if err != nil {
		return uuid.Nil, fmt.Errorf("console: find the account of the API key: %w", err)
	}
	return account, nil
}

// keyRow is the row of a key.
type keyRow struct {
	ID         uuid.UUID
	Point      string
	Attempt    int
	LeaseLeft  time.Duration // 0 when no run holds the key
	CreatedAt  time.Time
	LastRunAt  time.Time
	FinishedAt *time.Time
	LastError  string
	Response   int // status of the stored response, 0 without

	Orders int // created under the key
	Jobs   int // their receipts that are staged and not sent

	// ahead is how far the database's clock is ahead of ours.
	ahead time.Duration
}

// readKey returns a key's row, nil when there is none. lease is the LOCK_TIMEOUT of
// the API process.
func readKey(ctx context.Context, pool *pgxpool.Pool, account uuid.UUID, key string, lease time.Duration) (*keyRow, error) {
	var row keyRow
	var left float64 // seconds
	var databaseTime time.Time
	before := time.Now()
	err := pool.QueryRow(ctx, `
SELECT k.id,
       k.recovery_point,
       k.attempt,
       coalesce(greatest(extract(epoch FROM k.locked_at + $3::interval - now()), 0), 0)::float8,
       k.created_at,
       k.last_run_at,
       k.finished_at,
       coalesce(k.last_error, ''),
       coalesce(k.response_code, 0),
       (SELECT count(*)
          FROM orders AS o
         WHERE o.account_id = k.account_id
           AND o.idempotency_key = k.idempotency_key),
       (SELECT count(*)
          FROM orders AS o
          JOIN staged_jobs AS j
            ON j.account_id = o.account_id
           AND j.args ->> 'order_id' = o.id::text
         WHERE o.account_id = k.account_id
           AND o.idempotency_key = k.idempotency_key),
       now()
  FROM idempotency_keys AS k
 WHERE k.account_id = $1
   AND k.idempotency_key = $2`, account, key, lease).Scan(&row.ID, &row.Point, &row.Attempt, &left, &row.CreatedAt, &row.LastRunAt,
		&row.FinishedAt, &row.LastError, &row.Response, &row.Orders, &row.Jobs, &databaseTime)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the key's row: %w", err)
	}
	row.LeaseLeft = time.Duration(left * float64(time.Second))
	row.ahead = databaseTime.Sub(before)
	return &row, nil
}

// readHistory returns the order of the key and its audit records.
func readHistory(ctx context.Context, pool *pgxpool.Pool, account uuid.UUID, key string) (orders.KeyHistory, error) {
	history, err := orders.History(ctx, pool, account, idempotency.Key(key))
	if errors.Is(err, orders.ErrNotFound) {
		return orders.KeyHistory{}, nil
	}
	return history, err
}

// makeOlder makes an order that waits for its customer older, and the last run of its
// key too.
func makeOlder(ctx context.Context, pool *pgxpool.Pool, account uuid.UUID, key string, by time.Duration) error {
	tag, err := pool.Exec(ctx, `
WITH waiting AS (
    UPDATE idempotency_keys
       SET last_run_at = last_run_at - $3::interval
     WHERE account_id = $1
       AND idempotency_key = $2
       AND action_required_at IS NOT NULL
    RETURNING account_id, idempotency_key
)
UPDATE orders AS o
   SET created_at = o.created_at - $3::interval
  FROM waiting AS w
 WHERE o.account_id = w.account_id
   AND o.idempotency_key = w.idempotency_key`, account, key, by)
	if err == nil && tag.RowsAffected() != 1 {
		err = errors.New("it does not wait for its customer")
	}
	if err != nil {
		return fmt.Errorf("make the order older: %w", err)
	}
	return nil
}

// maxClockSkew is how far the provider's clock may be behind ours.
const maxClockSkew = 10 * time.Minute

// listIntents returns the provider's PaymentIntents of the key, newest first.
func listIntents(ctx context.Context, provider *payments.Client, since time.Time, keyID uuid.UUID) ([]payments.Intent, error) {
	var intents []payments.Intent
	err := provider.List(ctx, since.Add(-maxClockSkew), time.Time{}, func(intent payments.Intent) bool {
		if intent.Metadata["idempotency_key_id"] == keyID.String() {
			intents = append(intents, intent)
		}
		return true
	})
	return intents, err
}
