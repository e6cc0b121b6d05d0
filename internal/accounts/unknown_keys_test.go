package accounts_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/postgres"
)

// Unknown keys are not cached, so a key works as soon as it exists.
func TestAuthenticate_unknownKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	apiKey := unknownKey()
	f.requireRejected(apiKey, 1)
	f.requireRejected(apiKey, 1)
	hash := hashOf(apiKey)
	_, err := f.pool.Exec(t.Context(), `
INSERT INTO api_keys (id, account_id, key_hash, prefix)
VALUES ($1, $2, $3, $4)`, uuid.New(), f.account, []byte(hash), apiKey[:8])
	require.NoError(t, err)
	account, err := f.authenticator.Authenticate(t.Context(), apiKey)
	require.NoError(t, err)
	require.Equal(t, f.account, account)
}

// While lookups of unknown keys are blocked, cached keys are accepted and revalidated.
func TestAuthenticate_unknownKeysDoNotDelayRevalidation(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.requireAccepted(1)
	b := f.lookups.setBlock(block{except: f.apiKey})
	const unknown = 200
	rejected := make(chan error, unknown)
	for range unknown {
		go func() {
			_, err := f.authenticator.Authenticate(t.Context(), unknownKey())
			rejected <- err
		}()
	}
	<-b.reached
	for range 10 {
		f.pass(5 * time.Second)
		f.requireAccepted(1)
		f.requireAccepted(0)
	}
	require.Empty(t, b.reached, "one lookup of an unknown key at a time")
	require.EqualValues(t, 1, f.pool.Stat().AcquiredConns())
	close(b.released)
	for range unknown {
		require.ErrorIs(t, <-rejected, accounts.ErrUnauthorized)
	}
}

// A revoked key is not cached, so its lookup waits like that of an unknown key. A key
// that waits leaves the queue when its request ends.
func TestAuthenticate_queue(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.requireAccepted(1)
	f.revoke(f.apiKey)
	f.pass(5 * time.Second)
	f.requireRejected(f.apiKey, 1)

	before := f.lookups.count.Load()
	b := f.lookups.setBlock(block{})
	first := make(chan error)
	go func() {
		_, err := f.authenticator.Authenticate(t.Context(), unknownKey())
		first <- err
	}()
	<-b.reached
	for _, apiKey := range []string{f.apiKey, unknownKey()} {
		ctx, cancel := context.WithCancel(t.Context())
		waiting := make(chan error)
		go func() {
			_, err := f.authenticator.Authenticate(ctx, apiKey)
			waiting <- err
		}()
		cancel()
		err := <-waiting
		require.ErrorIs(t, err, postgres.ErrUnavailable)
		require.ErrorIs(t, err, context.Canceled)
	}
	close(b.released)
	require.ErrorIs(t, <-first, accounts.ErrUnauthorized)
	require.EqualValues(t, 1, f.lookups.count.Load()-before)
}
