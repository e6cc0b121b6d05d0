package embeddedpg

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

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
