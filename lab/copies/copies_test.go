//go:build copies

// Package copies_test takes and extends copies of the repository as its users do, and checks
// that they build and pass tests: make own-check, engine-check and guide-check.
package copies_test

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"
)

// everything selects make test instead of the tests that depend on the change.
var everything = flag.Bool("all", false, "run all tests of the copy")

const (
	root    = "../.."
	newPath = "github.com/you/shop"
)

func oldPath(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	return modfile.ModulePath(text)
}

// files lists the files of the repository, without those that are not committed.
func files(t *testing.T) []string {
	t.Helper()
	var list []string
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		require.NoError(t, err)
		switch {
		case entry.IsDir() && (name == ".git" || name == "bin"), entry.Name() == "node_modules":
			return filepath.SkipDir
		case entry.Type().IsRegular() && name != ".env" && name != ".git": // .git is a file in a worktree of git
			list = append(list, filepath.ToSlash(name))
		}
		return nil
	}))
	return list
}

func copyFile(t *testing.T, folder, name string) {
	t.Helper()
	copied, original := filepath.Join(folder, filepath.FromSlash(name)), filepath.Join(root, filepath.FromSlash(name))
	require.NoError(t, os.MkdirAll(filepath.Dir(copied), 0o755))
	info, err := os.Stat(original)
	require.NoError(t, err)
	text, err := os.ReadFile(original)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(copied, text, info.Mode().Perm()))
}

// run requires success and returns the standard output.
func run(t *testing.T, folder string, env []string, program string, args ...string) string {
	t.Helper()
	out, err := output(t, folder, env, program, args)
	require.NoError(t, err)
	return out
}

// tryRun returns the error of a program, with its output.
func tryRun(t *testing.T, folder, program string, args ...string) error {
	t.Helper()
	_, err := output(t, folder, nil, program, args)
	return err
}

func output(t *testing.T, folder string, env []string, program string, args []string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s in %s: %w\n%s%s", program, strings.Join(args, " "), folder, err, out, &stderr)
	}
	return string(out), err
}

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
			strings.HasPrefix(name, "migrations/statements/"),
			name == "go.mod", name == "go.sum":
			packages++
			copyFile(t, folder, name)
		}
	}
	require.NotZero(t, packages)
	engine := regexp.MustCompile(`(?s)-- The engine: .*?-- The orders\.`).FindString(read(t, "../..", "migrations/00001_initial.sql"))
	require.NotEmpty(t, engine)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "migrations", "00001_initial.sql"), []byte("-- +goose Up\n"+engine), 0o644))
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
