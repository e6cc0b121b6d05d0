//go:build linux || darwin

package embeddedpg

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
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

func TestServer_ready(t *testing.T) {
	t.Parallel()
	since := time.Unix(1_700_000_000, 0)
	tests := []struct {
		name, status string
		want         bool
	}{
		{"ours", "77\n/data\n1700000001\n5000\n\n127.0.0.1\n  1 2\nready   \n", true},
		{"still starting", "77\n/data\n1700000001\n5000\n\n127.0.0.1\n  1 2\nstarting\n", false},
		{"half written", "77\n/data\n1700000001\n5000\n", false},
		{"left by a crash, another port", "77\n/data\n1700000001\n5001\n\n127.0.0.1\n  1 2\nready   \n", false},
		{"left by a crash, long ago", "77\n/data\n1600000000\n5000\n\n127.0.0.1\n  1 2\nready   \n", false},
		{"garbage", "a\nb\nc\nd\ne\nf\ng\nready\n", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &Server{port: 5000}
			require.Equal(t, tt.want, s.ready(strings.Split(tt.status, "\n"), since))
		})
	}
}

func TestNewFolder_removesAbandoned(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	abandoned := filepath.Join(parent, scratchPrefix+"abandoned")
	foreign := filepath.Join(parent, "other")
	for _, dir := range []string{abandoned, foreign} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "data"), 0o700))
	}

	first, err := newFolder(t.Context(), parent, 0o700)
	require.NoError(t, err)
	require.NoDirExists(t, abandoned)
	require.DirExists(t, foreign)

	second, err := newFolder(t.Context(), parent, 0o700)
	require.NoError(t, err)
	require.DirExists(t, first.path, "a folder in use stays")

	require.NoError(t, first.release())
	require.NoDirExists(t, first.path)
	require.NoError(t, second.release())
}

func TestOwnFolder(t *testing.T) {
	t.Parallel()
	t.Run("made with its mode", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "new")
		require.NoError(t, ownFolder(path, 0o711))
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o711), info.Mode().Perm())
		require.NoError(t, ownFolder(path, 0o711), "and found again")
	})
	t.Run("a link", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "link")
		require.NoError(t, os.Symlink(t.TempDir(), path))
		require.ErrorContains(t, ownFolder(path, 0o700), "not a folder of this user")
	})
	t.Run("of another user", func(t *testing.T) {
		t.Parallel()
		other := "/" // root's
		if os.Geteuid() == 0 {
			other = t.TempDir()
			require.NoError(t, os.Chown(other, nobody, nobody))
		}
		require.ErrorContains(t, ownFolder(other, 0o700), "not a folder of this user")
	})
}

func TestOSUser_canReach(t *testing.T) {
	t.Parallel()
	other := osUser{uid: nobody - 1, gid: nobody - 1}
	self := osUser{uid: os.Geteuid(), gid: os.Getegid()}
	parent, err := os.MkdirTemp("/var/tmp", "embeddedpg-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(parent)) })
	dir := filepath.Join(parent, "dir")
	require.NoError(t, os.Mkdir(dir, 0o755))

	require.NoError(t, os.Chmod(parent, 0o711))
	require.True(t, other.canReach(dir))
	require.NoError(t, os.Chmod(parent, 0o700))
	require.False(t, other.canReach(dir))
	require.True(t, self.canReach(dir))
	require.False(t, self.canReach(filepath.Join(dir, "missing")))
}

func TestWaitLock_endsWithTheContext(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	held, err := tryLock(path)
	require.NoError(t, err)
	defer held.Close()
	_, err = tryLock(path)
	require.ErrorIs(t, err, errLocked)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, ErrInUse)
	defer cancel()
	_, err = waitLock(ctx, path)
	require.ErrorIs(t, err, ErrInUse)
}
