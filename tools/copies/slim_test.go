//go:build copies

package copies_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A slimmed copy builds, passes its tests and has no dead link. slim refuses to delete
// uncommitted files.
func TestSlim(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "shop")
	for _, name := range files(t) {
		copyFile(t, folder, name)
	}
	run(t, folder, nil, "make", "rename", "MODULE="+newPath)
	git := func(args ...string) {
		run(t, folder, nil, "git", append([]string{"-c", "user.name=x", "-c", "user.email=x@example.com"}, args...)...)
	}
	git("init", "--quiet")
	require.ErrorContains(t, tryRun(t, folder, "make", "slim"), "not committed")
	git("add", "--all")
	git("commit", "--quiet", "--message", "A project of my own")

	out := run(t, folder, nil, "make", "slim")
	require.Contains(t, out, "removed examples/credits\n")
	require.NoFileExists(t, filepath.Join(folder, "examples", "credits"))
	require.NotContains(t, read(t, folder, "Makefile"), "slim")
	require.Contains(t, read(t, folder, "Makefile"), "\nrun:")
	require.ErrorContains(t, tryRun(t, folder, "make", "slim"), "No rule")

	run(t, folder, nil, "make", "tidy")
	run(t, folder, nil, "go", "build", "./...")
	run(t, filepath.Join(folder, "tools"), nil, "go", "vet", "./...")
	run(t, filepath.Join(folder, "tools"), nil, "go", "test", "./docscheck", "./deploy", "./monitoring")
	run(t, folder, nil, "make", "generated")
	if *everything {
		run(t, folder, nil, "make", "test")
		return
	}
	run(t, folder, nil, "go", "test", "-run", "Generated|Examples?|Usage|Spec|Routes|Dev", "./api", "./cmd/...", "./idempotency", "./orders")
}

func read(t *testing.T, folder, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, name))
	require.NoError(t, err)
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}
