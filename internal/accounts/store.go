package accounts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

// Errors of accounts and their keys.
var (
	ErrAccountNotFound = errors.New("there is no such account")
	ErrKeyNotFound     = errors.New("the account has no such API key")
)

// Key is a stored API key.
type Key struct {
	AccountID uuid.UUID
	ID        uuid.UUID
	Prefix    string // its first characters
	CreatedAt time.Time
	RevokedAt *time.Time // nil if the key is not revoked
}

// Create creates an account with one API key.
func Create(ctx context.Context, pool *pgxpool.Pool, name string) (accountID uuid.UUID, apiKey string, _ error) {
	accountID = uuid.New() // random, because derived ids hash it and must differ in each database
	batch := &pgx.Batch{}
	batch.Queue(`
INSERT INTO accounts (id, name)
VALUES ($1, $2)`, accountID, strings.TrimSpace(name))
	_, apiKey = queueKey(batch, accountID)
	if err := pool.SendBatch(ctx, batch).Close(); err != nil {
		return uuid.Nil, "", fmt.Errorf("create account: %w", postgres.Translate(err))
	}
	return accountID, apiKey, nil
}

// CreateKey creates an API key of an account, or returns [ErrAccountNotFound].
func CreateKey(ctx context.Context, pool *pgxpool.Pool, accountID uuid.UUID) (id uuid.UUID, apiKey string, err error) {
	batch := &pgx.Batch{}
	id, apiKey = queueKey(batch, accountID)
	err = pool.SendBatch(ctx, batch).Close()
	switch {
	case postgres.SQLState(err) == postgres.ForeignKeyViolation:
		return uuid.Nil, "", ErrAccountNotFound
	case err != nil:
		return uuid.Nil, "", fmt.Errorf("create API key: %w", postgres.Translate(err))
	}
	return id, apiKey, nil
}

func queueKey(batch *pgx.Batch, accountID uuid.UUID) (id uuid.UUID, apiKey string) {
	id, apiKey = uuid.New(), newKey()
	hash := hashKey(apiKey)
	batch.Queue(`
INSERT INTO api_keys (id, account_id, key_hash, prefix)
VALUES ($1, $2, $3, $4)`, id, accountID, hash[:], Prefix(apiKey))
	return id, apiKey
}

// Account is an account and the number of its API keys that are not revoked.
type Account struct {
	ID        uuid.UUID
	Name      string
	CreatedAt time.Time
	Keys      int
}

// List returns all accounts, oldest first.
func List(ctx context.Context, pool *pgxpool.Pool) ([]Account, error) {
	return postgres.Collect(ctx, pool, "list accounts", pgx.RowToStructByPos[Account], `
SELECT a.id,
       a.name,
       a.created_at,
       count(k.id)
  FROM accounts AS a
  LEFT JOIN api_keys AS k
    ON k.account_id = a.id
   AND k.revoked_at IS NULL
 GROUP BY a.id
 ORDER BY a.created_at, a.id`)
}

// ListKeys returns the API keys of an account, or of all if accountID is uuid.Nil, oldest first. Each account has
// one, so [ErrAccountNotFound] means that there are none.
func ListKeys(ctx context.Context, pool *pgxpool.Pool, accountID uuid.UUID) ([]Key, error) {
	keys, err := postgres.Collect(ctx, pool, "list API keys", pgx.RowToStructByPos[Key], `
SELECT account_id,
       id,
       prefix,
       created_at,
       revoked_at
  FROM api_keys
 WHERE account_id = $1
    OR $1 = '00000000-0000-0000-0000-000000000000'
 ORDER BY created_at, id`, accountID)
	if err == nil && len(keys) == 0 {
		err = ErrAccountNotFound
	}
	return keys, err
}

// RevokeKey revokes an API key of the account. A revoked key keeps its RevokedAt.
func RevokeKey(ctx context.Context, pool *pgxpool.Pool, accountID, id uuid.UUID) (Key, error) {
	keys, err := postgres.Collect(ctx, pool, "revoke API key", pgx.RowToStructByPos[Key], `
UPDATE api_keys
   SET revoked_at = least(revoked_at, now()) -- not coalesce, in which Citus rejects now()
 WHERE account_id = $1
   AND id = $2
RETURNING account_id, id, prefix, created_at, revoked_at`, accountID, id)
	switch {
	case err != nil:
		return Key{}, err
	case len(keys) == 0:
		return Key{}, ErrKeyNotFound
	}
	return keys[0], nil
}
