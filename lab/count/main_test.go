package main

import (
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
