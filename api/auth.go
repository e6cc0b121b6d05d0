package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/idempotency"
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

// withAccount lets only requests with a valid API key pass, and tells the
// handlers whose it is.
func withAccount(pool *pgxpool.Pool, reads *idempotency.Gate) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return handlerFunc(func(w http.ResponseWriter, r *http.Request) error {
			id, err := authenticate(r.Context(), pool, reads, r.Header.Values("Authorization"))
			if err != nil {
				return err
			}
			logAttrs(r.Context()).add(slog.String("account_id", id.String()))
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), accountIDKey, id)))
			return nil
		})
	}
}

// authenticate returns the account of the API key in the Authorization header,
// of which there must be one. Whose it is is not known yet, so the look at it has
// its place by what was sent.
func authenticate(ctx context.Context, pool *pgxpool.Pool, reads *idempotency.Gate, headers []string) (uuid.UUID, error) {
	if len(headers) != 1 {
		return uuid.Nil, errUnauthorized
	}
	scheme, key, _ := strings.Cut(headers[0], " ")
	if !strings.EqualFold(scheme, "Bearer") || !strings.HasPrefix(key, apiKeyPrefix) || len(key) > 255 {
		return uuid.Nil, errUnauthorized
	}
	place, err := reads.Enter(uuid.NewSHA1(uuid.Nil, []byte(key)))
	if err != nil {
		return uuid.Nil, err
	}
	defer place.Leave()
	return lookUpKey(ctx, pool, key)
}

// KnowsKey says whether key is a valid API key of some account.
func KnowsKey(ctx context.Context, pool *pgxpool.Pool, key string) (bool, error) {
	_, err := lookUpKey(ctx, pool, key)
	if errors.Is(err, errUnauthorized) {
		return false, nil
	}
	return err == nil, err
}

// lookUpKey returns the account of an API key, or errUnauthorized. It looks for
// the hash, so its timing tells nothing about a key.
func lookUpKey(ctx context.Context, pool *pgxpool.Pool, key string) (uuid.UUID, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	hash := sha256.Sum256([]byte(key))
	var id uuid.UUID
	err := pool.QueryRow(ctx, `
SELECT account_id
  FROM api_keys
 WHERE key_hash = $1
   AND revoked_at IS NULL`, hash[:]).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return uuid.Nil, errUnauthorized
	}
	if err != nil {
		return uuid.Nil, fmt.Errorf("look up API key: %w", idempotency.Interpret(err))
	}
	return id, nil
}
