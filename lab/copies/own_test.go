//go:build copies

package copies_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A clone that make own has changed builds, passes its tests and its linters, has no dead
// link and no word about what is gone. make upgrade merges a newer version of the template
// into the shop's own changes.
func TestOwn(t *testing.T) {
	parent := t.TempDir()
	template, shop := filepath.Join(parent, "orders-api"), filepath.Join(parent, "shop")
	for _, name := range files(t) {
		copyFile(t, template, name)
	}
	git := func(folder string, args ...string) string {
		return run(t, folder, nil, "git", append([]string{"-c", "user.name=x", "-c", "user.email=x@example.com"}, args...)...)
	}
	git(template, "init", "--quiet", "--initial-branch=main")
	git(template, "add", "--all")
	git(template, "commit", "--quiet", "--message", "The template")
	git(parent, "clone", "--quiet", "orders-api", "shop")
	write := func(folder, name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(folder, filepath.FromSlash(name)), []byte(text), 0o644))
	}

	require.ErrorContains(t, tryRun(t, shop, "make", "own"), "usage")
	write(shop, "notes.txt", "mine")
	require.ErrorContains(t, tryRun(t, shop, "make", "own", "MODULE="+newPath), "commit or discard")
	require.NoError(t, os.Remove(filepath.Join(shop, "notes.txt")))
	tests := "GO=true" // make test runs below, or never
	if *everything {
		tests = "GO=go"
	}
	run(t, shop, []string{"MAKEFLAGS=" + tests}, "make", "own", "MODULE="+newPath)
	require.Empty(t, git(shop, "status", "--porcelain"))

	require.NoDirExists(t, filepath.Join(shop, "lab"))
	require.NoDirExists(t, filepath.Join(shop, "spec"))
	requireOwned(t, shop)
	run(t, shop, nil, "go", "vet", "./...")
	run(t, shop, nil, "make", "tidy", "lint", "generated")
	run(t, shop, nil, "go", "test", "-run", "Generated|Examples?|Usage|Spec|Routes|Dev", "./api", "./cmd/...", "./idempotency", "./orders")
	run(t, ".", []string{"DOCSCHECK_ROOT=" + shop}, "go", "test", "-vet=off", "-count=1", "-run", "^TestLinks$", "../docscheck")

	// The shop changes a receipt, the template another line of it and a package.
	const receipt = "receipts/receipt.txt.tmpl"
	write(shop, receipt, read(t, shop, receipt)+"\nCome again.\n")
	git(shop, "commit", "--quiet", "--all", "--message", "Our receipt")
	write(template, receipt, "Dear customer,\n\n"+read(t, template, receipt))
	write(template, "client/version.go", "package client\n\n// Version is new.\nconst Version = \"9\"\n")
	git(template, "add", "--all")
	git(template, "commit", "--quiet", "--message", "A newer template")
	run(t, shop, nil, "make", "upgrade", "FROM="+template)
	git(shop, "merge", "--quiet", "--no-edit", "template")
	merged := read(t, shop, receipt)
	require.True(t, strings.HasPrefix(merged, "Dear customer,\n"), merged)
	require.True(t, strings.HasSuffix(merged, "Come again.\n"), merged)
	require.NoDirExists(t, filepath.Join(shop, "lab"))
	run(t, shop, nil, "go", "build", "./...")
}

// requireOwned checks that no file has the old module or a word about what is gone.
func requireOwned(t *testing.T, folder string) {
	t.Helper()
	gone := []string{
		oldPath(t), "lab/", "-C lab", "-C spec", "make own ", "crash matrix", "soak", "conformance", "make bench", "laboratory",
		"orders demo", "make demo", "the demo", "the console", "/console", "consoleextension", "earlierdesigns", "earlier designs",
	}
	for _, name := range strings.Fields(run(t, folder, nil, "git", "ls-files")) {
		if name == "api/docs/scalar.js.gz" || filepath.Base(name) == "go.sum" {
			continue
		}
		text := strings.ToLower(read(t, folder, name))
		for _, word := range gone {
			if strings.Contains(text, word) {
				t.Errorf("%s contains %q", name, word)
			}
		}
	}
}

func read(t *testing.T, folder, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, name))
	require.NoError(t, err)
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}
