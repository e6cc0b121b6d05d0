package accounts

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestCache_bound(t *testing.T) {
	t.Parallel()
	a := NewAuthenticator(nil, time.Now)
	for i := range maxCached + 100 {
		var hash keyHash
		binary.BigEndian.PutUint64(hash[:], uint64(i))
		a.rememberLocked(nil, map[keyHash]uuid.UUID{hash: {}}, time.Time{})
		_, cached := a.cache[hash]
		require.True(t, cached)
	}
	require.Len(t, a.cache, maxCached)
}
