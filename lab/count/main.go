// Command count prints the size of each package and of the pages: make -C lab count.
//
// Code is Go and SQL without comments and blank lines. Tests are the _test.go files.
package main

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
)

const product, demo, harness, profile, nested = "product", "demo and development", "test harness", "the profile", "module "

// groups maps files and folders to groups. The longest path wins, and the default is the
// product.
func groups() map[string]string {
	return map[string]string{
		"cmd/playground": demo, "cmd/stripetest": demo, "examples": demo, "internal/embeddedpg": demo, "internal/subprocess": demo, "payments/stripetest": demo,
		"internal/foreigntest": harness, "internal/mailtest": harness, "internal/programtest": harness, "idempotency/idempotencytest": harness, "migrations/dbtest": harness, "orders/orderstest": harness,
		"spec": profile,
	}
}

type size struct{ code, tests, comments, pages int }

func (s size) plus(o size) size {
	return size{s.code + o.code, s.tests + o.tests, s.comments + o.comments, s.pages + o.pages}
}

func main() {
	if err := report(os.Stdout, os.DirFS(os.Args[1])); err != nil {
		fmt.Fprintln(os.Stderr, "count:", err)
		os.Exit(1)
	}
}

// measure returns the size of each folder, by "group: folder".
func measure(root fs.FS) (map[string]size, error) {
	sizes, groups := map[string]size{}, groups()
	return sizes, fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch base := path.Base(name); {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{"testdata", "bin", "node_modules", ".git"}, base):
			return fs.SkipDir
		case entry.IsDir():
			if _, err := fs.Stat(root, name+"/go.mod"); err == nil && name != "." {
				groups[name] = nested + name
			}
			return nil
		}
		content, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		group := product
		for p := name; p != "." && group == product; p = path.Dir(p) {
			if found, ok := groups[p]; ok {
				group = found
			}
		}
		folder := group + ": " + path.Dir(name)
		sizes[folder] = sizes[folder].plus(count(name, content))
		return nil
	})
}

func count(name string, content []byte) size {
	switch path.Ext(name) {
	case ".md":
		return size{pages: len(bytes.Fields(content))}
	case ".sql":
		code := regexp.MustCompile(`--.*`).ReplaceAll(content, nil)
		all := bytes.ReplaceAll(content, []byte("--"), nil)
		return size{code: lines(code), comments: len(bytes.Fields(all)) - len(bytes.Fields(code))}
	case ".go":
		file := token.NewFileSet().AddFile("", -1, len(content))
		var s scanner.Scanner
		s.Init(file, content, nil, scanner.ScanComments)
		code, words := slices.Clone(content), 0
		for pos, kind, text := s.Scan(); kind != token.EOF; pos, kind, text = s.Scan() {
			if kind == token.COMMENT {
				words += len(strings.Fields(strings.Trim(text, "/* ")))
				copy(code[file.Offset(pos):], bytes.Repeat([]byte(" "), len(text)))
			}
		}
		if strings.HasSuffix(name, "_test.go") {
			return size{tests: lines(code), comments: words}
		}
		return size{code: lines(code), comments: words}
	}
	return size{}
}

// lines counts the lines that are not blank.
func lines(content []byte) int {
	return len(regexp.MustCompile(`(?m)^.*\S.*$`).FindAll(content, -1))
}

func report(out io.Writer, root fs.FS) error {
	sizes, err := measure(root)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, s size) {
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t  %s\n", s.code, s.tests, s.comments, s.pages, name)
	}
	fmt.Fprintln(w, "code\ttests\twords of comments\twords of pages\t")
	totals, main := map[string]size{}, size{}
	for _, folder := range slices.Sorted(maps.Keys(sizes)) {
		if s := sizes[folder]; s != (size{}) {
			row(folder, s)
			group, _, _ := strings.Cut(folder, ":")
			totals[group] = totals[group].plus(s)
			if group != profile && !strings.HasPrefix(group, nested) {
				main = main.plus(s)
			}
		}
	}
	for _, group := range slices.Sorted(maps.Keys(totals)) {
		row("total of "+group, totals[group])
	}
	row("total of the main module", main)
	if err := w.Flush(); err != nil {
		return err
	}
	code := max(totals[product].code, 1)
	perLine := func(tests int) float64 { return float64(tests) / float64(code) }
	_, err = fmt.Fprintf(out, "\nMain module:\nproduct: %d lines\n"+
		"tests of the product: %.2f lines per line of product code; with all other tests and the harness: %.2f\n"+
		"comments and pages: %d words\n",
		code, perLine(totals[product].tests), perLine(main.tests+totals[harness].code), main.comments+main.pages)
	return err
}
