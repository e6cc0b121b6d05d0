package accounts_test

import (
	"context"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/postgres"
)

func TestNewAuthenticator_config(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t)
	small := idempotencytest.NewPool(t, func(config *pgxpool.Config) { config.MaxConns = accounts.Connections - 1 })
	for name, config := range map[string]accounts.Config{
		"no pool":    {Clock: time.Now},
		"no clock":   {Pool: pool},
		"small pool": {Pool: small, Clock: time.Now},
	} {
		_, err := accounts.NewAuthenticator(config)
		require.ErrorContains(t, err, "accounts: an Authenticator", name)
	}
}

func TestAuthenticate_revokedKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.requireAccepted(1)
	f.revoke(f.apiKey)
	f.pass(5*time.Second - 1)
	f.requireAccepted(0)
	f.pass(1)
	f.requireRejected(f.apiKey, 1)
	f.requireRejected(f.apiKey, 1)
}

// The age of an entry counts from before its lookup, so a key that is revoked during
// the lookup works for no longer.
func TestAuthenticate_revokedDuringLookup(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	b := f.lookups.setBlock(block{})
	done := make(chan error)
	go func() {
		_, err := f.authenticator.Authenticate(t.Context(), f.apiKey)
		done <- err
	}()
	<-b.reached
	f.pass(2 * time.Second)
	close(b.released)
	require.NoError(t, <-done)
	f.revoke(f.apiKey)
	f.pass(3*time.Second - 1)
	f.requireAccepted(0)
	f.pass(1)
	f.requireRejected(f.apiKey, 1)
}

func TestAuthenticate_malformedKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, apiKey := range map[string]string{
		"empty":             "",
		"the prefix":        "ok_",
		"no prefix":         f.apiKey[3:],
		"another prefix":    "sk_" + f.apiKey[3:],
		"one less":          f.apiKey[:len(f.apiKey)-1],
		"one more":          f.apiKey + "A",
		"in lower case":     strings.ToLower(f.apiKey),
		"another character": f.apiKey[:len(f.apiKey)-1] + "1",
		"not in ASCII":      f.apiKey[:len(f.apiKey)-2] + "é",
		"a blank":           f.apiKey + " ",
		"a long one":        "ok_" + strings.Repeat("A", 10<<10),
	} {
		t.Run(name, func(*testing.T) { f.requireRejected(apiKey, 0) })
	}
	f.requireAccepted(1)
}

func TestAuthenticate_fullCache(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const capacity = 10_000
	apiKeys := make([]string, capacity)
	hashes := make([][]byte, capacity)
	for i := range apiKeys {
		var number [16]byte
		binary.BigEndian.PutUint64(number[:], uint64(i))
		apiKeys[i] = "ok_" + base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(number[:])
		hashes[i] = []byte(hashOf(apiKeys[i]))
	}
	_, err := f.pool.Exec(t.Context(), `
INSERT INTO api_keys (id, account_id, key_hash, prefix)
SELECT gen_random_uuid(), $1, hash, 'ok_many'
  FROM unnest($2::bytea[]) hash`, f.account, hashes)
	require.NoError(t, err)

	all := func() (lookups int64) {
		before := f.lookups.count.Load()
		for _, apiKey := range apiKeys {
			account, err := f.authenticator.Authenticate(t.Context(), apiKey)
			require.NoError(t, err)
			require.Equal(t, f.account, account)
		}
		return f.lookups.count.Load() - before
	}
	require.EqualValues(t, capacity, all())
	for range 100 {
		f.requireRejected(unknownKey(), 1)
	}
	require.Zero(t, all(), "unknown keys evict nothing")

	f.requireAccepted(1)
	// The lookup of an evicted key evicts another one, often one that was checked
	// already.
	lookups := all()
	require.Positive(t, lookups)
	require.Less(t, lookups, int64(capacity/2))
}

func TestAuthenticate_sharedLookup(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, state := range []string{"never verified", "stale"} {
		before := f.lookups.count.Load()
		b := f.lookups.setBlock(block{})
		var requests errgroup.Group
		for range 50 {
			requests.Go(func() error {
				account, err := f.authenticator.Authenticate(t.Context(), f.apiKey)
				if account != f.account {
					return errors.Join(errors.New("another account"), err)
				}
				return err
			})
		}
		<-b.reached
		close(b.released)
		require.NoError(t, requests.Wait(), state)
		require.EqualValues(t, 1, f.lookups.count.Load()-before, state)
		f.pass(5 * time.Second)
	}
}

func TestAuthenticate_cancelledRequest(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.requireAccepted(1)
	f.pass(5 * time.Second)
	b := f.lookups.setBlock(block{})
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error)
	go func() {
		_, err := f.authenticator.Authenticate(ctx, f.apiKey)
		first <- err
	}()
	<-b.reached
	second := make(chan error)
	go func() {
		_, err := f.authenticator.Authenticate(t.Context(), f.apiKey)
		second <- err
	}()
	cancel()
	require.ErrorIs(t, <-first, context.Canceled)
	close(b.released)
	require.NoError(t, <-second)
	f.requireAccepted(0)
	require.EqualValues(t, f.pool.Stat().TotalConns(), f.pool.Stat().NewConnsCount(), "no connection was closed")
}

// A cached key works for five seconds without the database.
func TestAuthenticate_databaseOutage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.requireAccepted(1)
	f.lookups.setDown(true)
	f.pass(5*time.Second - 1)
	f.requireAccepted(0)
	f.pass(1)
	for _, apiKey := range []string{f.apiKey, unknownKey()} {
		_, err := f.authenticator.Authenticate(t.Context(), apiKey)
		require.ErrorIs(t, err, postgres.ErrUnavailable)
		require.NotErrorIs(t, err, accounts.ErrUnauthorized)
	}
	f.lookups.setDown(false)
	f.requireAccepted(1)
	f.requireRejected(unknownKey(), 1)
}

func TestAuthenticate_lookupTimeout(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(config *pgxpool.Config) {
		params := config.ConnConfig.RuntimeParams
		params["lock_timeout"], params["idle_in_transaction_session_timeout"] = "0", "0"
	})
	f.requireAccepted(1)
	f.authenticator.SetLookupTimeout(50 * time.Millisecond)
	f.pass(5 * time.Second)
	operator, err := pgx.ConnectConfig(t.Context(), f.pool.Config().ConnConfig)
	require.NoError(t, err)
	defer func() { _ = operator.Close(context.Background()) }()
	migration, err := operator.Begin(t.Context())
	require.NoError(t, err)
	_, err = migration.Exec(t.Context(), "LOCK TABLE api_keys")
	require.NoError(t, err)

	errs := make(chan error)
	for _, apiKey := range []string{f.apiKey, unknownKey()} {
		go func() {
			_, err := f.authenticator.Authenticate(t.Context(), apiKey)
			errs <- err
		}()
	}
	for range 2 {
		err := <-errs
		require.ErrorIs(t, err, postgres.ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	require.NoError(t, migration.Rollback(t.Context()))
	f.authenticator.SetLookupTimeout(time.Minute)
	f.requireAccepted(1)
}
