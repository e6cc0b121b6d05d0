package accounts_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

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

// Keys that wait share a lookup, so outsiders delay a valid key that is not cached by
// about one. Each key gets its own result.
func TestAuthenticate_batch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const outsiders = 2500
	other, otherKey := f.create()
	_, revoked := f.create()
	f.revoke(revoked)
	want := map[string]uuid.UUID{f.apiKey: f.account, otherKey: other, revoked: uuid.Nil}
	for range outsiders {
		want[unknownKey()] = uuid.Nil
	}

	b := f.lookups.setBlock(block{})
	var requests errgroup.Group
	requests.Go(func() error {
		_, err := f.authenticator.Authenticate(t.Context(), unknownKey())
		if !errors.Is(err, accounts.ErrUnauthorized) {
			return fmt.Errorf("the first: %w", err)
		}
		return nil
	})
	<-b.reached
	before := f.lookups.count.Load()
	for apiKey, account := range want {
		requests.Go(func() error {
			got, err := f.authenticator.Authenticate(t.Context(), apiKey)
			if got != account || errors.Is(err, accounts.ErrUnauthorized) != (account == uuid.Nil) {
				return fmt.Errorf("%s: got account %s: %w", apiKey, got, err)
			}
			return nil
		})
	}
	f.requireWaiting(len(want))
	close(b.released)
	require.NoError(t, requests.Wait())
	require.EqualValues(t, 3, f.lookups.count.Load()-before, "at most 1,000 keys each")
	f.requireAccepted(0)
}

// A failed lookup rejects no key.
func TestAuthenticate_failedBatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	b := f.lookups.setBlock(block{})
	errs := make(chan error)
	authenticate := func(apiKey string) {
		_, err := f.authenticator.Authenticate(t.Context(), apiKey)
		errs <- err
	}
	go authenticate(unknownKey())
	<-b.reached
	go authenticate(f.apiKey)
	go authenticate(unknownKey())
	f.requireWaiting(2)
	f.lookups.setDown(true)
	close(b.released)
	for range 3 {
		err := <-errs
		require.ErrorIs(t, err, postgres.ErrUnavailable)
		require.NotErrorIs(t, err, accounts.ErrUnauthorized)
	}
	f.lookups.setDown(false)
	f.requireAccepted(1)
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
		f.requireWaiting(0)
		ctx, cancel := context.WithCancel(t.Context())
		waiting := make(chan error)
		go func() {
			_, err := f.authenticator.Authenticate(ctx, apiKey)
			waiting <- err
		}()
		f.requireWaiting(1)
		cancel()
		err := <-waiting
		require.ErrorIs(t, err, postgres.ErrUnavailable)
		require.ErrorIs(t, err, context.Canceled)
	}
	close(b.released)
	require.ErrorIs(t, <-first, accounts.ErrUnauthorized)
	require.EqualValues(t, 1, f.lookups.count.Load()-before)
}
