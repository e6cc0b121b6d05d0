package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestMeasure(t *testing.T) {
	t.Parallel()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	root := fstest.MapFS{
		"go.mod":                          file("module x\n"),
		"README.md":                       file("# Three words\n"),
		"orders/orders.go":                file("// Package orders has one comment.\npackage orders\n\n/* and\nanother */\nconst sql = `\nSELECT 1\n\n  FROM t` // why\n"),
		"orders/orders_test.go":           file("package orders\n\nfunc f() { g(); h() }\n"),
		"orders/testdata/page.md":         file("not counted\n"),
		"migrations/1.sql":                file("-- A comment.\n\nCREATE TABLE t (); -- and more\n"),
		"migrations/dbtest/dbtest.go":     file("package dbtest\n"),
		"payments/stripetest/x/server.go": file("package x\n"),
		"spec/profile.md":                 file("not words of the module\n"),
		"lab/go.mod":                      file("module x/lab\n"),
		"lab/count/main.go":               file("package main\n"),
		"lab/README.md":                   file("words\n"),
	}
	sizes, err := measure(root)
	require.NoError(t, err)
	for k, want := range map[string]size{
		product + ": .":                  {pages: 3},
		product + ": orders":             {code: 4, tests: 2, comments: 8},
		product + ": migrations":         {code: 1, comments: 4},
		harness + ": migrations/dbtest":  {code: 1},
		demo + ": payments/stripetest/x": {code: 1},
		profile + ": spec":               {pages: 5},
		nested + "lab: lab/count":        {code: 1},
		nested + "lab: lab":              {pages: 1},
	} {
		require.Equal(t, want, sizes[k], k)
	}
	var out strings.Builder
	require.NoError(t, report(&out, root))
	require.Contains(t, out.String(), "\nproduct: 5 lines\ntests of the product: 0.40 lines")
	require.Contains(t, out.String(), "\ncomments and pages: 15 words\n")
}

// The program that runs in production, and the tests of the template, stay as small as they are, so that a team can
// read them. A limit is raised only for what the team would miss.
func TestProgram_size(t *testing.T) {
	t.Parallel()
	const maxLines, maxTestLines, maxPackages, maxRoot = 10_200, 23_000, 19, 26
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f",
		`{{if .Module}}{{if .Module.Main}}{{.ImportPath}}{{range .GoFiles}} {{$.Dir}}/{{.}}{{end}}{{end}}{{end}}`, "./cmd/orders")
	list.Dir = "../.."
	out, err := list.Output()
	require.NoError(t, err)
	code, packages := 0, strings.Split(strings.TrimSpace(string(out)), "\n")
	comment := regexp.MustCompile(`(?m)^\s*//.*`)
	for _, listed := range packages {
		for _, file := range strings.Fields(listed)[1:] {
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			code += lines(comment.ReplaceAll(content, nil))
		}
	}
	require.LessOrEqual(t, code, maxLines, "lines without comments and blank ones")
	require.LessOrEqual(t, len(packages), maxPackages, packages)

	files := exec.CommandContext(t.Context(), "git", "ls-files", "*_test.go", ":!lab", ":!spec", ":!internal/crash")
	files.Dir = "../.."
	out, err = files.Output()
	require.NoError(t, err)
	tests := 0
	for _, file := range strings.Fields(string(out)) {
		content, err := os.ReadFile(filepath.Join(files.Dir, file))
		require.NoError(t, err)
		tests += bytes.Count(content, []byte("\n"))
	}
	require.LessOrEqual(t, tests, maxTestLines, "lines of tests, with comments and blank ones")

	entries := exec.CommandContext(t.Context(), "git", "ls-tree", "--name-only", "HEAD")
	entries.Dir = "../.."
	out, err = entries.Output()
	require.NoError(t, err)
	visible := regexp.MustCompile(`(?m)^[^.].*$`).FindAll(out, -1)
	require.LessOrEqual(t, len(visible), maxRoot, "visible entries of the root: %s", bytes.Join(visible, []byte(" ")))
}
