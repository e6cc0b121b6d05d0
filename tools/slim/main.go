// Command slim removes the demo, the console, the example operation, the long tests and
// their pages from a clone: make slim.
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/format"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

var removed = []string{
	"bench",
	"cmd/internal/demo",
	"cmd/orders/console.go",
	"cmd/orders/console_test.go",
	"cmd/orders/demo.go",
	"cmd/orders/demo_test.go",
	"conformance",
	"docs/add-an-operation.md",
	"docs/console.md",
	"docs/console.png",
	"examples/credits",
	"internal/crash",
	"internal/subprocess",
	"spec",
	"tools/browser",
	"tools/console",
	"tools/contractfuzz",
	"tools/comparison",
	"tools/copies",
	"tools/earlierdesigns",
	"tools/profile",
	"tools/ruleset",
	"tools/slim",
}

func main() {
	force := flag.Bool("force", false, "delete even if git cannot restore the files")
	flag.Parse()
	if err := run(".", *force, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "slim:", err)
		os.Exit(1)
	}
}

func run(root string, force bool, stdout io.Writer) error {
	if !force {
		if err := requireCommitted(root); err != nil {
			return err
		}
	}
	before, err := countLines(root)
	if err != nil {
		return err
	}
	for _, name := range removed {
		path := filepath.Join(root, filepath.FromSlash(name))
		if _, err := os.Stat(path); err != nil {
			return err // the list is out of date, or slim has run before
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		fmt.Fprintln(stdout, "removed", name)
	}
	if err := editFiles(root, stdout); err != nil {
		return err
	}
	for _, args := range [][]string{{"mod", "tidy"}, {"-C", "tools", "mod", "tidy"}, {"vet", "./..."}} {
		fmt.Fprintln(stdout, "go", strings.Join(args, " "), "…")
		cmd := exec.Command("go", args...) //nolint:gosec,noctx // fixed arguments; it ends by itself
		cmd.Dir, cmd.Stdout, cmd.Stderr = root, stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
		}
	}
	after, err := countLines(root)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "Go code: %d lines before, %d now. Next: make test, then git diff --stat.\n", before, after)
	return nil
}

// requireCommitted returns an error if git cannot restore the deleted files.
func requireCommitted(root string) error {
	cmd := exec.Command("git", "status", "--porcelain") //nolint:noctx // it ends by itself
	cmd.Dir = root
	out, err := cmd.Output()
	switch {
	case err != nil:
		return errors.New("this is not a git repository, so deleted files cannot be restored; run \"git init\" and commit, or use SLIM=-force")
	case len(out) > 0:
		return errors.New("there are changes that are not committed; commit them first, or use SLIM=-force")
	}
	return nil
}

// editFiles removes marked sections, and links to removed pages.
func editFiles(root string, stdout io.Writer) error {
	return walk(root, func(path string, text []byte) error {
		edited, err := removeSections(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if filepath.Ext(path) == ".md" {
			edited = removeLinks(edited, func(target string) bool {
				_, err := os.Stat(filepath.Join(filepath.Dir(path), filepath.FromSlash(target)))
				return err == nil
			})
		}
		if edited == string(text) {
			return nil
		}
		if filepath.Ext(path) == ".go" { // without the empty lines around a section
			formatted, err := format.Source([]byte(edited))
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			edited = string(formatted)
		}
		fmt.Fprintln(stdout, "edited", path)
		return os.WriteFile(path, []byte(edited), 0o644) //nolint:gosec // it exists and keeps its mode
	})
}

func countLines(root string) (int, error) {
	lines := 0
	err := walk(root, func(path string, text []byte) error {
		if filepath.Ext(path) == ".go" {
			lines += strings.Count(string(text), "\n")
		}
		return nil
	})
	return lines, err
}

// walk visits each text file.
func walk(root string, visit func(path string, text []byte) error) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "bin" || entry.Name() == "node_modules"):
			return fs.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path) //nolint:gosec // a file of the repository
		if err != nil || strings.ContainsRune(string(text), 0) {
			return err
		}
		return visit(path, text)
	})
}
