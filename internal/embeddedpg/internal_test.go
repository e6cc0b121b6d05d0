package embeddedpg

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
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

func TestOpenScratch_removesAbandoned(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	abandoned := filepath.Join(parent, scratchPrefix+"abandoned")
	foreign := filepath.Join(parent, "other")
	for _, dir := range []string{abandoned, foreign} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "data"), 0o700))
	}

	first, second := newServer(Options{}), newServer(Options{})
	require.NoError(t, first.openScratch(t.Context(), parent))
	require.NoDirExists(t, abandoned)
	require.DirExists(t, foreign)

	require.NoError(t, second.openScratch(t.Context(), parent))
	require.DirExists(t, first.dir, "a folder in use stays")

	require.NoError(t, first.release())
	require.NoDirExists(t, first.dir)
	require.NoError(t, second.release())
}

func TestOwnFolder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new")
	require.NoError(t, ownFolder(path))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, folderMode(), info.Mode().Perm())
	require.NoError(t, ownFolder(path), "and found again")

	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(t.TempDir(), link))
	require.ErrorContains(t, ownFolder(link), "not a folder of this user")

	other := "/" // root's
	if os.Geteuid() == 0 {
		other = t.TempDir()
		require.NoError(t, os.Chown(other, nobody, nobody))
	}
	require.ErrorContains(t, ownFolder(other), "not a folder of this user")
}

func TestCanReach(t *testing.T) {
	t.Parallel()
	parent, err := os.MkdirTemp("/var/tmp", "embeddedpg-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(parent)) })
	dir := filepath.Join(parent, "dir")
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.Chmod(parent, 0o711))
	require.True(t, canReach(dir))
	require.NoError(t, os.Chmod(parent, 0o700))
	require.Equal(t, !asNobody(), canReach(dir))
}

func TestWaitLock_endsWithTheContext(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	held, err := tryLock(path)
	require.NoError(t, err)
	defer held.Close()
	_, err = tryLock(path)
	require.ErrorIs(t, err, syscall.EWOULDBLOCK)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, ErrInUse)
	defer cancel()
	_, err = waitLock(ctx, path)
	require.ErrorIs(t, err, ErrInUse)
}
