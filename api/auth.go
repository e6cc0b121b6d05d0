package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

// apiKeyPrefix begins every API key, so that scanners and people know one when
// they see it.
const apiKeyPrefix = "ok_"

// shownPrefix is how much of a key is stored in the clear: apiKeyPrefix and
// five of the 26 random characters.
const shownPrefix = len(apiKeyPrefix) + 5

// CreateAccount makes an account and its first API key, which it returns. Only
// the key's SHA-256 is stored, so this is the only time that anybody sees it.
// The key has more than 128 random bits, which is why a plain hash is enough.
func CreateAccount(ctx context.Context, pool *pgxpool.Pool, name string) (accountID uuid.UUID, apiKey string, err error) {
	name = strings.TrimSpace(name)
	if n := utf8.RuneCountInString(name); n < 1 || n > 200 || !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
		return uuid.Nil, "", errors.New("an account's name has 1 to 200 characters")
	}
	accountID = uuid.New() // random: derived ids hash it (R5)
	apiKey = apiKeyPrefix + rand.Text()
	hash := sha256.Sum256([]byte(apiKey))
	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `
INSERT INTO accounts (id, name)
VALUES ($1, $2)`, accountID, name); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `
INSERT INTO api_keys (id, account_id, key_hash, prefix)
VALUES ($1, $2, $3, $4)`, uuid.New(), accountID, hash[:], apiKey[:shownPrefix])
		return err
	})
	if err != nil {
		return uuid.Nil, "", fmt.Errorf("create account: %w", err)
	}
	return accountID, apiKey, nil
}

// KnowsKey says whether key is a valid API key of some account.
func KnowsKey(ctx context.Context, pool *pgxpool.Pool, key string) (bool, error) {
	hash := sha256.Sum256([]byte(key))
	_, err := scanAPIKey(pool.QueryRow(ctx, apiKeySQL, hash[:]))
	if errors.Is(err, errUnauthorized) {
		return false, nil
	}
	return err == nil, interpretLookUp(err)
}

// apiKeySQL looks for the hash, so its timing tells nothing about a key.
const apiKeySQL = `
SELECT account_id
  FROM api_keys
 WHERE key_hash = $1
   AND revoked_at IS NULL`

// scanAPIKey returns the account of an API key, or errUnauthorized.
func scanAPIKey(row pgx.Row) (account uuid.UUID, err error) {
	err = row.Scan(&account)
	if errors.Is(err, pgx.ErrNoRows) {
		err = errUnauthorized
	}
	return account, err
}

func interpretLookUp(err error) error {
	if err == nil || errors.Is(err, errUnauthorized) {
		return err
	}
	return fmt.Errorf("look up API key: %w", postgres.Translate(err))
}
