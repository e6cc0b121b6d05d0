//go:build copies

// Package copies_test renames, slims and extends copies of the repository, and checks that
// they build and pass tests: make rename-check, slim-check, engine-check and guide-check.
package copies_test

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"
)

// everything selects make test instead of the tests that depend on the change.
var everything = flag.Bool("all", false, "run all tests of the copy")

const (
	root    = "../.."
	newPath = "github.com/you/shop"
	version = "v0.0.1"
)

func nested() []string { return []string{"bench", "conformance", "tools"} }

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

func TestRename(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "shop")
	for _, name := range files(t) {
		copyFile(t, folder, name)
	}
	run(t, folder, nil, "make", "rename", "MODULE="+newPath)
	requireRenamed(t, folder)
	requireWorks(t, folder)
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

// requireRenamed checks that no file contains the old path. Output in pages may contain
// it.
func requireRenamed(t *testing.T, folder string) {
	t.Helper()
	for _, name := range files(t) {
		if filepath.Ext(name) != ".md" {
			text, err := os.ReadFile(filepath.Join(folder, filepath.FromSlash(name)))
			require.NoError(t, err)
			require.NotContains(t, string(text), oldPath(t), name)
		}
	}
}

// gonew copies modules from a proxy, with one call for each module.
func TestGonew(t *testing.T) {
	proxy := t.TempDir()
	publish(t, proxy, oldPath(t), "")
	for _, name := range nested() {
		publish(t, proxy, oldPath(t)+"/"+name, name+"/")
	}
	gonew := strings.TrimSpace(run(t, ".", nil, "go", "tool", "-n", "gonew"))
	// The usual module cache would keep the modules.
	env := []string{"GOPROXY=file://" + filepath.ToSlash(proxy), "GOMODCACHE=" + t.TempDir(), "GOFLAGS=-modcacherw", "GOSUMDB=off", "GOWORK=off"}
	parent := t.TempDir()
	folder := filepath.Join(parent, "shop")
	run(t, parent, env, gonew, oldPath(t)+"@"+version, newPath, folder)
	run(t, folder, nil, "go", "build", "./...")
	for _, name := range nested() {
		run(t, parent, env, gonew, oldPath(t)+"/"+name+"@"+version, newPath+"/"+name, filepath.Join(folder, name))
	}
	run(t, folder, nil, "make", "rename", "MODULE="+newPath) // gonew renames only the paths of each module itself
	requireRenamed(t, folder)
	requireWorks(t, folder)
}

// publish adds the module in a folder to a file proxy.
func publish(t *testing.T, proxy, path, below string) {
	t.Helper()
	var content []modzip.File
	for _, name := range files(t) {
		inside, ours := strings.CutPrefix(name, below)
		top, _, _ := strings.Cut(name, "/")
		if ours && (below != "" || !slices.Contains(nested(), top)) {
			content = append(content, file{inside, filepath.Join(root, filepath.FromSlash(name))})
		}
	}
	var archive bytes.Buffer
	require.NoError(t, modzip.Create(&archive, module.Version{Path: path, Version: version}, content))
	mod, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(below), "go.mod"))
	require.NoError(t, err)

	folder := filepath.Join(proxy, filepath.FromSlash(path), "@v")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	for name, text := range map[string][]byte{
		"list":            []byte(version + "\n"),
		version + ".info": []byte(`{"Version":"` + version + `","Time":"` + time.Now().UTC().Format(time.RFC3339) + `"}`),
		version + ".mod":  mod,
		version + ".zip":  archive.Bytes(),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), text, 0o644))
	}
}

type file struct{ path, source string }

func (f file) Path() string                 { return f.path }
func (f file) Lstat() (os.FileInfo, error)  { return os.Lstat(f.source) }
func (f file) Open() (io.ReadCloser, error) { return os.Open(f.source) }

func requireWorks(t *testing.T, folder string) {
	t.Helper()
	require.Equal(t, newPath, strings.TrimSpace(run(t, folder, nil, "go", "list", "-m")))
	run(t, folder, nil, "go", "build", "./...")
	run(t, folder, nil, "go", "mod", "verify")
	run(t, folder, nil, "go", "vet", "./...")
	for _, name := range nested() {
		run(t, filepath.Join(folder, name), nil, "go", "vet", "-tags", "copies,pgbouncer", "./...")
	}
	if *everything {
		run(t, folder, nil, "make", "test")
		return
	}
	run(t, folder, nil, "go", "test", "-run", "Mutants|Generated|Examples?|Usage|Spec|Routes",
		"./api", "./cmd/...", "./examples/...", "./idempotency", "./internal/crash", "./payments/...")
	run(t, filepath.Join(folder, "bench"), nil, "go", "test", "./...")
	run(t, filepath.Join(folder, "tools"), nil, "go", "test", "-run", "Generated|Client|TestStart", "./docscheck", "./stripemock")
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
