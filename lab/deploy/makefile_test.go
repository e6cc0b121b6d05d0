package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The targets that run the program read .env. A variable of the environment wins.
func TestMakefile_env(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"run", "demo"} {
		folder := t.TempDir()
		write := func(name, content string, mode os.FileMode) {
			require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(content), mode))
		}
		write("Makefile", read(t, "Makefile"), 0o600)
		write(".env", "STRIPE_SECRET_KEY=\nRECEIPTS_FROM='Tea & more <tea@example.com>'\n", 0o600)
		require.NoError(t, os.Mkdir(filepath.Join(folder, "bin"), 0o700))
		write("bin/playground", "#!/bin/sh\necho \"$STRIPE_SECRET_KEY, $RECEIPTS_FROM, $QUOTED\"\n", 0o700)
		cmd := exec.CommandContext(t.Context(), "make", "--silent", target, "GO=true")
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "STRIPE_SECRET_KEY=sk_test_1", "QUOTED=it's $HOME")
		output, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", output)
		require.Contains(t, string(output), "sk_test_1, Tea & more <tea@example.com>, it's $HOME\n", target)
	}
}
