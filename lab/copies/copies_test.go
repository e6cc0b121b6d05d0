//go:build copies

// Package copies_test takes and extends copies of the repository as its users do, and checks
// that they build and pass tests: make own-check, engine-check and guide-check.
package copies_test

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/lab/labtest"
	"example.com/orders-api/migrations/dbtest"
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
			name == "migrations/migrations.go",
			strings.HasPrefix(name, "migrations/statements/"),
			name == "go.mod", name == "go.sum":
			packages++
			copyFile(t, folder, name)
		}
	}
	require.NotZero(t, packages)
	const migration = "migrations/00001_initial.sql"
	engine, _, found := strings.Cut(read(t, "../..", migration), "-- The orders.")
	require.True(t, found)
	write(t, folder, migration, engine)
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

func git(t *testing.T, folder string, args ...string) string {
	t.Helper()
	return run(t, folder, nil, "git", append([]string{"-c", "user.name=x", "-c", "user.email=x@example.com"}, args...)...)
}

func write(t *testing.T, folder, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(folder, filepath.FromSlash(name)), []byte(text), 0o644))
}

// clone returns the template and a clone of it, in repositories of their own.
func clone(t *testing.T) (template, shop string) {
	t.Helper()
	parent := t.TempDir()
	template, shop = filepath.Join(parent, "orders-api"), filepath.Join(parent, "shop")
	for _, name := range files(t) {
		copyFile(t, template, name)
	}
	git(t, template, "init", "--quiet", "--initial-branch=main")
	git(t, template, "add", "--all")
	git(t, template, "commit", "--quiet", "--message", "The template")
	git(t, parent, "clone", "--quiet", "orders-api", "shop")
	return template, shop
}

// A clone that make own has changed builds, passes its tests and its linters, has no dead
// link and no word about what is gone.
func TestOwn(t *testing.T) {
	_, shop := clone(t)
	require.ErrorContains(t, tryRun(t, shop, "make", "own"), "usage")
	write(t, shop, "notes.txt", "mine")
	require.ErrorContains(t, tryRun(t, shop, "make", "own", "MODULE="+newPath), "commit or discard")
	require.NoError(t, os.Remove(filepath.Join(shop, "notes.txt")))
	tests := "GO=true" // make test runs below, or never
	if *everything {
		tests = "GO=go"
	}
	run(t, shop, []string{"MAKEFLAGS=" + tests}, "make", "own", "MODULE="+newPath)
	require.Empty(t, git(t, shop, "status", "--porcelain"))

	require.NoDirExists(t, filepath.Join(shop, "lab"))
	require.NoDirExists(t, filepath.Join(shop, "spec"))
	requireOwned(t, shop)
	run(t, shop, []string{"MAKEFLAGS=-n"}, ".ci/run") // only its own lines: each make prints what it would do
	run(t, shop, nil, "go", "vet", "./...")
	run(t, shop, nil, "make", "tidy", "lint", "generated")
	run(t, shop, nil, "go", "test", "-run", "Generated|Examples?|Usage|Spec|Routes|Dev", "./api", "./cmd/...", "./idempotency", "./orders")
	run(t, ".", []string{"DOCSCHECK_ROOT=" + shop}, "go", "test", "-vet=off", "-count=1", "-run", "^TestLinks$", "../docscheck")
}

// make upgrade merges a newer version of the template into the shop's own changes, also in a clone
// of a colleague, which has no branch template. The newer version's migration is applied to a
// database with data that has the shop's own, whose number is higher, and the merged server creates
// an order for an account that is older than the upgrade.
func TestUpgrade(t *testing.T) {
	template, shop := clone(t)
	run(t, shop, []string{"MAKEFLAGS=GO=true"}, "make", "own", "MODULE="+newPath)
	const receipt, own, newer = "receipts/receipt.txt.tmpl", "20261126103000_notes.sql", "00999_newer.sql"
	write(t, shop, receipt, read(t, shop, receipt)+"\nCome again.\n")
	write(t, shop, "migrations/"+own, "-- +goose Up\nALTER TABLE accounts ADD COLUMN notes text;\n-- +goose Down\nALTER TABLE accounts DROP COLUMN notes;\n")
	git(t, shop, "add", "--all")
	git(t, shop, "commit", "--quiet", "--message", "Our receipt and notes")
	git(t, shop, "branch", "--quiet", "--delete", "--force", "template")

	build := func() { t.Helper(); run(t, shop, nil, "go", "build", "-o", "bin/", "./cmd/orders") }
	pool := dbtest.Empty(t)
	fixture := labtest.NewFixtureOn(t, pool, dbtest.URL(pool))
	orders := func(args ...string) string {
		t.Helper()
		return run(t, shop, fixture.Environ, "bin/orders", args...)
	}
	build()
	orders("migrate", "up")
	ann := strings.Fields(orders("accounts", "create", "--name", "Ann"))
	fixture.APIKey = ann[len(ann)-1]

	write(t, template, receipt, "Dear customer,\n\n"+read(t, template, receipt))
	write(t, template, "migrations/"+newer, "-- +goose Up\nALTER TABLE accounts ADD COLUMN newer text;\n-- +goose Down\nALTER TABLE accounts DROP COLUMN newer;\n")
	git(t, template, "add", "--all")
	git(t, template, "commit", "--quiet", "--message", "A newer template")
	run(t, shop, nil, "make", "upgrade", "FROM="+template)
	git(t, shop, "merge", "--quiet", "--no-commit", "template")
	require.Contains(t, run(t, shop, nil, "make", "upgrade", "FROM="+template), "has this version already")
	merged := read(t, shop, receipt)
	require.True(t, strings.HasPrefix(merged, "Dear customer,\n"), merged)
	require.True(t, strings.HasSuffix(merged, "Come again.\n"), merged)
	require.NoDirExists(t, filepath.Join(shop, "lab"))

	build()
	_, err := output(t, shop, fixture.Environ, "bin/orders", []string{"accounts", "create", "--name", "Bob"})
	require.ErrorContains(t, err, "(missing: "+newer+")")
	status := orders("migrate", "status")
	require.Contains(t, status, "pending  "+newer+"\n")
	require.Contains(t, status, "applied  "+own+"\n")
	require.Equal(t, "applied: 1\n", orders("migrate", "up"))
	orders("accounts", "create", "--name", "Bob")
	api := fixture.Listening(programtest.StartProgram(t, filepath.Join(shop, "bin/orders"), fixture.Environ, "serve"))
	programtest.Eventually(t, func() bool {
		ready, err := api.Do(t.Context(), http.MethodGet, "/readyz", "", nil)
		require.NoError(t, err)
		return ready.Status == http.StatusOK
	})
	order, err := api.Order(t.Context(), "after-the-upgrade")
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, order.Status, order.Body)
	api.Stop()
	require.Equal(t, "rolled back: "+newer+"\n", orders("migrate", "down", "--yes"))
	run(t, shop, nil, "go", "test", "./migrations")
}

var pageName = regexp.MustCompile(`\bdocs/[A-Za-z/-]+\.md\b`)

var emptySection = regexp.MustCompile(`(?m)^## .*\n\n##? .*$|^### .*\n\n##?#? .*$|^\d+\. *$`)

// requireOwned checks that no file has the old module or a word about what is gone.
func requireOwned(t *testing.T, folder string) {
	t.Helper()
	gone := []string{
		oldPath(t), "lab/", "-C lab", "-C spec", "make own ", "soak", "conformance", "make bench", "laboratory",
		"playground demo", "make demo", "the demo", "the console", "docs/console", "consoleextension", "earlierdesigns", "earlier designs",
	}
	for _, name := range strings.Fields(run(t, folder, nil, "git", "ls-files")) {
		if name == "cmd/playground/internal/docs/scalar.js.gz" || filepath.Base(name) == "go.sum" {
			continue
		}
		text := strings.ToLower(read(t, folder, name))
		for _, word := range gone {
			if strings.Contains(text, word) {
				t.Errorf("%s contains %q", name, word)
			}
		}
		for _, page := range pageName.FindAllString(read(t, folder, name), -1) {
			if _, err := os.Stat(filepath.Join(folder, page)); err != nil {
				t.Errorf("%s names %s, which is gone", name, page)
			}
		}
		if strings.HasSuffix(name, ".md") && emptySection.MatchString(text) {
			t.Errorf("%s: nothing is left of %q", name, emptySection.FindString(text))
		}
	}
}

func read(t *testing.T, folder, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, name))
	require.NoError(t, err)
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}
