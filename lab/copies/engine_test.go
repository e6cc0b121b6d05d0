//go:build copies

package copies_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The files of docs/guides/engine-only.md alone must build and pass the tests of the
// engine.
func TestEngine(t *testing.T) {
	const module = "github.com/you/payouts"
	folder := t.TempDir()
	ours := oldPath(t)
	packages := 0
	for _, name := range files(t) {
		switch {
		case strings.HasPrefix(name, "idempotency/"), strings.HasPrefix(name, "internal/postgres/"),
			strings.HasPrefix(name, "migrations/dbtest/") && !strings.HasSuffix(name, "_test.go"),
			strings.HasPrefix(name, "internal/embeddedpg/") && !strings.HasSuffix(name, "_test.go"),
			name == "migrations/migrations.go", name == "migrations/distribute.go",
			strings.HasPrefix(name, "migrations/statements/"), name == "migrations/00002_idempotency.sql",
			name == "go.mod", name == "go.sum":
			packages++
			copyFile(t, folder, name)
		}
	}
	require.NotZero(t, packages)
	rewrite(t, folder, ours, module)
	run(t, folder, nil, "go", "mod", "tidy")
	run(t, folder, nil, "go", "build", "./...")
	run(t, folder, nil, "go", "vet", "./...")
	t.Log(run(t, folder, nil, "go", "test", "-timeout", "5m", "./idempotency/..."))

	direct := run(t, folder, nil, "go", "list", "-m", "-f", "{{if and (not .Main) (not .Indirect)}}{{.Path}}{{end}}", "all")
	t.Logf("%d direct dependencies:\n%s", len(strings.Fields(direct)), direct)
}

func rewrite(t *testing.T, folder, from, to string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" && entry.Name() != "go.mod" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, []byte(strings.ReplaceAll(string(text), from, to)), 0o644)
	}))
}
