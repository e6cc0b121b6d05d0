package api

import (
	"encoding/binary"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency/idempotencytest"
)

// However many API keys are tried, so many are remembered, the latest among them.
func TestCredentials_rememberNoMore(t *testing.T) {
	t.Parallel()
	c := newCredentials(nil, nil)
	var hash keyHash
	for i := range maxSeen + 10 {
		binary.BigEndian.PutUint64(hash[:], uint64(i))
		c.remember(hash, uuid.New())
	}
	require.Len(t, c.seen, maxSeen)
	_, known := c.recall(hash)
	require.True(t, known)
}

// What is remembered may be wrong. It opens nothing then, and is not asked again.
func TestCredentials_rememberedWrongly(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t)
	account, key, err := CreateAccount(t.Context(), pool, "test")
	require.NoError(t, err)
	hash, err := presented(map[string][]string{"Authorization": {"Bearer " + key}})
	require.NoError(t, err)

	c := newCredentials(pool, nil)
	c.remember(hash, uuid.New())
	guessed := &caller{hash: hash}
	guessed.account, _ = c.recall(hash)
	require.ErrorIs(t, c.check(t.Context(), guessed), errUnauthorized)
	require.False(t, guessed.checked.Load())
	_, known := c.recall(hash)
	require.False(t, known)

	asked := &caller{hash: hash}
	require.NoError(t, c.check(t.Context(), asked))
	require.Equal(t, account, asked.account)
}
