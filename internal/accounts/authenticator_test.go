package accounts_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/postgres"
)

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
	done := f.authenticate(t.Context(), f.apiKey)
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
		"another prefix":    "sk_" + f.apiKey[3:],
		"one less":          f.apiKey[:len(f.apiKey)-1],
		"in lower case":     strings.ToLower(f.apiKey),
		"another character": f.apiKey[:len(f.apiKey)-1] + "1",
		"a long one":        "ok_" + strings.Repeat("A", 10<<10),
	} {
		t.Run(name, func(*testing.T) { f.requireRejected(apiKey, 0) })
	}
}

// Requests share the lookup of a key, so one that ends does not cancel it.
func TestAuthenticate_sharedLookup(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	b := f.lookups.setBlock(block{})
	ctx, cancel := context.WithCancel(t.Context())
	first := f.authenticate(ctx, f.apiKey)
	<-b.reached
	var others []<-chan error
	for range 50 {
		others = append(others, f.authenticate(t.Context(), f.apiKey))
	}
	cancel()
	err := <-first
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, postgres.ErrUnavailable)
	close(b.released)
	for _, other := range others {
		require.NoError(t, <-other)
	}
	f.requireAccepted(0)
	require.EqualValues(t, 1, f.lookups.count.Load())
	require.EqualValues(t, f.pool.Stat().TotalConns(), f.pool.Stat().NewConnsCount(), "no connection was closed")
}

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

// A pool without a free connection is 503, and never 401.
func TestAuthenticate_poolExhausted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.requireAccepted(1)
	f.pass(5 * time.Second)
	for range poolSize {
		conn, err := f.pool.Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
	}
	var results []<-chan error
	for _, apiKey := range []string{f.apiKey, unknownKey(), unknownKey(), unknownKey()} { // the last one waits for its turn
		results = append(results, f.authenticate(t.Context(), apiKey))
	}
	for _, result := range results {
		err := <-result
		require.ErrorIs(t, err, postgres.ErrUnavailable)
		require.NotErrorIs(t, err, accounts.ErrUnauthorized)
	}
}

// After a failover, nothing that the old server verified is valid (R30, ready to take an order), nor what it
// answers then.
func TestAuthenticator_reset(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.requireAccepted(1)
	f.requireAccepted(0)
	f.revoke(f.apiKey)
	f.authenticator.Reset()
	f.requireRejected(f.apiKey, 1)

	_, apiKey := create(t, f.pool)
	b := f.lookups.setBlock(block{})
	before := f.authenticate(t.Context(), apiKey)
	<-b.reached
	f.authenticator.Reset()
	after := f.authenticate(t.Context(), apiKey)
	<-b.reached
	close(b.released)
	require.ErrorIs(t, <-before, postgres.ErrUnavailable)
	require.NoError(t, <-after)
}

// A standby may lack a key, or its revocation, so its answer is none.
func TestAuthenticate_standby(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, statement := range []string{
		"CREATE SCHEMA standby",
		"CREATE FUNCTION standby.pg_is_in_recovery() RETURNS boolean RETURN true",
		"DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = standby, pg_catalog, public', current_database()); END $$",
	} {
		_, err := f.pool.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	f.pool.Reset()
	for _, apiKey := range []string{f.apiKey, unknownKey()} {
		_, err := f.authenticator.Authenticate(t.Context(), apiKey)
		require.ErrorIs(t, err, postgres.ErrUnavailable)
	}
}
