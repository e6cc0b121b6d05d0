package devservices

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/migrations/dbtest"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Main{M: m}.Run()) }

// The orders of an account stay readable, also after its key has leaked and was revoked.
func TestAPIKey(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "api-keys")
	seen := map[uuid.UUID]bool{}
	for range 2 { // two databases
		pool := dbtest.New(t)
		account, key, err := APIKey(t.Context(), pool, file)
		require.NoError(t, err)
		again, same, err := APIKey(t.Context(), pool, file)
		require.NoError(t, err)
		require.Equal(t, account, again)
		require.Equal(t, key, same)
		keys, err := accounts.ListKeys(t.Context(), pool, account)
		require.NoError(t, err)
		_, err = accounts.RevokeKey(t.Context(), pool, account, keys[0].ID)
		require.NoError(t, err)
		again, other, err := APIKey(t.Context(), pool, file)
		require.NoError(t, err)
		require.Equal(t, account, again)
		require.NotEqual(t, key, other)
		seen[account] = true
	}
	require.Len(t, seen, 2)
}

func TestFolderName(t *testing.T) {
	t.Parallel()
	var clones []string
	for _, name := range []string{"one", "two"} {
		clone := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.MkdirAll(filepath.Join(clone, "cmd", "orders"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(clone, "go.mod"), nil, 0o600))
		clones = append(clones, clone)
	}
	name := folderName("example.org/you/shop", clones[0], "")
	require.Regexp(t, `^shop-[0-9a-f]{8}$`, name)
	require.Equal(t, name, folderName("example.org/you/shop", filepath.Join(clones[0], "cmd", "orders"), ""))
	require.NotEqual(t, name, folderName("example.org/you/shop", clones[1], ""), "another clone")
	require.NotEqual(t, name, folderName("example.org/me/shop", clones[0], ""), "a renamed project")
	require.NotEqual(t, name, folderName("example.org/you/shop", clones[0], "https://api.stripe.com"), "another provider")
	empty := t.TempDir() // no go.mod
	require.NotEqual(t, folderName("shop", empty, ""), folderName("shop", filepath.Join(empty, "below"), ""))
}
