package accounts_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
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

// However many keys outsiders try, two connections look them up, and the others serve orders and known keys.
func TestAuthenticate_unknownKeysDelayNoOther(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.requireAccepted(1)
	b := f.lookups.setBlock(block{except: f.apiKey})
	var rejected []<-chan error
	for range 200 {
		rejected = append(rejected, f.authenticate(t.Context(), unknownKey()))
	}
	<-b.reached
	<-b.reached
	for range 10 {
		f.pass(5 * time.Second)
		f.requireAccepted(1)
		f.requireAccepted(0)
		_, err := f.pool.Exec(t.Context(), "SELECT")
		require.NoError(t, err)
	}
	require.Empty(t, b.reached)
	require.LessOrEqual(t, f.pool.Stat().AcquiredConns(), int32(2))
	close(b.released)
	for _, result := range rejected {
		require.Error(t, <-result) // on a busy machine, the lookups of the last ones have timed out
	}
}
