package accounts_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/internal/accounts"
)

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

func TestAuthenticate_unknownKeysDoNotDelayRevalidation(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.requireAccepted(1)
	b := f.lookups.setBlock(block{except: f.apiKey})
	var rejected []<-chan error
	for range 200 {
		rejected = append(rejected, f.authenticate(t.Context(), unknownKey()))
	}
	<-b.reached
	for range 10 {
		f.pass(5 * time.Second)
		f.requireAccepted(1)
		f.requireAccepted(0)
	}
	require.Empty(t, b.reached, "one lookup of an unknown key at a time")
	close(b.released)
	for _, result := range rejected {
		require.ErrorIs(t, <-result, accounts.ErrUnauthorized)
	}
}

// Keys that wait share a lookup, so outsiders delay a valid key that is not cached by
// about one. Each key gets its own result.
func TestAuthenticate_batch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const outsiders = 500
	other, otherKey := create(t, f.pool)
	_, revoked := create(t, f.pool)
	f.revoke(revoked)
	want := map[string]uuid.UUID{f.apiKey: f.account, otherKey: other, revoked: uuid.Nil}
	for range outsiders {
		want[unknownKey()] = uuid.Nil
	}

	b := f.lookups.setBlock(block{})
	first := f.authenticate(t.Context(), unknownKey())
	<-b.reached
	var requests errgroup.Group
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
	require.ErrorIs(t, <-first, accounts.ErrUnauthorized)
	require.NoError(t, requests.Wait())
	require.EqualValues(t, 1+1, f.lookups.count.Load())
}
