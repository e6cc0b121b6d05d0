package devservices

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

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
