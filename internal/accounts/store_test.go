package accounts_test

import (
	"crypto/sha256"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/postgres"
)

func TestCreate(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t)
	id, apiKey := create(t, pool)
	require.Regexp(t, `^ok_[A-Z2-7]{26}$`, apiKey)
	require.EqualValues(t, 4, id.Version(), "random, because derived ids hash it")

	var hash []byte
	var prefix, rows string
	require.NoError(t, pool.QueryRow(t.Context(), `
SELECT key_hash,
       prefix,
       concat(accounts, api_keys)
  FROM accounts
  JOIN api_keys ON account_id = accounts.id
 WHERE accounts.id = $1`, id).Scan(&hash, &prefix, &rows))
	want := sha256.Sum256([]byte(apiKey))
	require.Equal(t, want[:], hash)
	require.Equal(t, apiKey[:8], prefix)
	require.NotContains(t, rows, apiKey[8:], "only the hash of the rest is stored")
}

func TestCreate_names(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t)
	for name, text := range map[string]string{
		"blanks":       " \t ",
		"too long":     strings.Repeat("é", 201),
		"NUL":          "a\x00b",
		"not in UTF-8": "a\xffb",
	} {
		_, _, err := accounts.Create(t.Context(), pool, text)
		require.Error(t, err, name)
	}
	_, _, err := accounts.Create(t.Context(), pool, " "+strings.Repeat("é", 200)+" ")
	require.NoError(t, err)
	var stored string
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT name FROM accounts").Scan(&stored))
	require.Equal(t, strings.Repeat("é", 200), stored)
}

func TestKeys(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t)
	account, first := create(t, pool)
	other, others := create(t, pool)
	createdID, second, err := accounts.CreateKey(t.Context(), pool, account)
	require.NoError(t, err)
	require.NotEqual(t, first, second)

	keys, err := accounts.ListKeys(t.Context(), pool, account)
	require.NoError(t, err)
	require.Len(t, keys, 2)
	require.Equal(t, first[:8], keys[0].Prefix, "oldest first")
	require.Nil(t, keys[0].RevokedAt)
	created := keys[1]
	require.Equal(t, createdID, created.ID)
	require.Equal(t, second[:8], created.Prefix)
	requireValid(t, pool, true, first, second, others)

	revoked, err := accounts.RevokeKey(t.Context(), pool, account, keys[0].ID)
	require.NoError(t, err)
	require.Equal(t, keys[0].ID, revoked.ID)
	require.WithinDuration(t, time.Now(), *revoked.RevokedAt, time.Hour)
	requireValid(t, pool, false, first)
	requireValid(t, pool, true, second, others)

	again, err := accounts.RevokeKey(t.Context(), pool, account, revoked.ID)
	require.NoError(t, err)
	require.Equal(t, revoked, again, "the first time stays")
	keys, err = accounts.ListKeys(t.Context(), pool, account)
	require.NoError(t, err)
	require.Equal(t, []accounts.Key{revoked, created}, keys)

	for _, ofAnother := range []uuid.UUID{other, uuid.New()} {
		_, err := accounts.RevokeKey(t.Context(), pool, ofAnother, created.ID)
		require.ErrorIs(t, err, accounts.ErrKeyNotFound)
	}
	requireValid(t, pool, true, others)
	_, _, err = accounts.CreateKey(t.Context(), pool, uuid.New())
	require.ErrorIs(t, err, accounts.ErrAccountNotFound)
	require.NotErrorIs(t, err, postgres.ErrUnavailable)
	_, err = accounts.ListKeys(t.Context(), pool, uuid.New())
	require.ErrorIs(t, err, accounts.ErrAccountNotFound)
}

func create(t *testing.T, pool *pgxpool.Pool) (uuid.UUID, string) {
	t.Helper()
	account, apiKey, err := accounts.Create(t.Context(), pool, "test")
	require.NoError(t, err)
	return account, apiKey
}

func requireValid(t *testing.T, pool *pgxpool.Pool, want bool, apiKeys ...string) {
	t.Helper()
	authenticator := accounts.NewAuthenticator(pool, time.Now) // with an empty cache
	for _, apiKey := range apiKeys {
		_, err := authenticator.Authenticate(t.Context(), apiKey)
		if want {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, accounts.ErrUnauthorized)
		}
	}
}
