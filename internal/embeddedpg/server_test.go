package embeddedpg_test

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
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/internal/embeddedpg"
)

const waitTimeout = 30 * time.Second

func options() embeddedpg.Options {
	return embeddedpg.Options{
		BinDir: os.Getenv("PG_BIN"),
		Logger: slog.New(slog.DiscardHandler),
	}
}

func start(t *testing.T, o embeddedpg.Options) *embeddedpg.Server {
	t.Helper()
	server, err := embeddedpg.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Stop() })
	return server
}

// keptDir returns a folder that a server of any user can enter, unlike t.TempDir.
func keptDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "embeddedpg-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o711))
	return filepath.Join(dir, "kept")
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func setting(t *testing.T, conn *pgx.Conn, name string) string {
	t.Helper()
	var value string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&value))
	return value
}

func requireGone(t *testing.T, url string) {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		conn, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: net.ParseIP(config.Host), Port: int(config.Port)})
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}, waitTimeout, 10*time.Millisecond, "the server still listens")
}

// A superuser of the database can run commands.
func requirePassword(t *testing.T, server *embeddedpg.Server) {
	t.Helper()
	connect(t, server.URL("postgres"))
	for _, password := range []string{"", "postgres", "wrong"} {
		config, err := pgx.ParseConfig(server.URL("postgres"))
		require.NoError(t, err)
		require.NotEmpty(t, config.Password)
		require.NotContains(t, server.URL("postgres"), config.Password, "a URL appears in logs")
		config.Password = password
		_, err = pgx.ConnectConfig(t.Context(), config)
		var refused *pgconn.PgError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "28P01", refused.Code)
	}
	info, err := os.Stat(filepath.Join(server.Dir(), "pgpass"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

// Two servers that start at once share nothing, and one ends with its data.
func TestStart_temporaryData(t *testing.T) {
	t.Parallel()
	o := options()
	o.Settings = map[string]string{"max_connections": "17", "application_name": "a b'c"}
	var servers [2]*embeddedpg.Server
	var group errgroup.Group
	for i := range servers {
		group.Go(func() (err error) {
			servers[i], err = embeddedpg.Start(t.Context(), o)
			return err
		})
	}
	require.NoError(t, group.Wait())
	for _, server := range servers {
		t.Cleanup(func() { _ = server.Stop() })
		requirePassword(t, server)
		conn := connect(t, server.URL("postgres"))
		_, err := conn.Exec(t.Context(), "CREATE TABLE of_this_server ()")
		require.NoError(t, err)
		for name, want := range map[string]string{"fsync": "off", "max_connections": "17", "application_name": "a b'c", "listen_addresses": "127.0.0.1"} {
			require.Equal(t, want, setting(t, conn, name))
		}
		info, err := os.Stat(filepath.Join(server.Dir(), "data"))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
		require.NotZero(t, info.Sys().(*syscall.Stat_t).Uid, "the server must not run as root")
		require.NoFileExists(t, filepath.Join(server.Dir(), "password"))
	}
	require.NotEqual(t, servers[0].Dir(), servers[1].Dir())

	require.NoError(t, syscall.Kill(servers[0].PID(), syscall.SIGQUIT))
	<-servers[0].Exited()
	require.ErrorContains(t, servers[0].Stop(), "received immediate shutdown request")
	require.NoDirExists(t, servers[0].Dir())

	connect(t, servers[1].URL("postgres"))
	require.NoError(t, servers[1].Stop())
	requireGone(t, servers[1].URL("postgres"))
	require.NoDirExists(t, servers[1].Dir())
	<-servers[1].Exited()
	require.NoError(t, servers[1].Stop(), "a second call does no harm")
}

func TestStart_keptData(t *testing.T) {
	t.Parallel()
	o := options()
	o.DataDir = keptDir(t)

	server := start(t, o)
	conn := connect(t, server.URL("postgres"))
	require.Equal(t, "on", setting(t, conn, "fsync"))
	require.Equal(t, "on", setting(t, conn, "synchronous_commit"))
	_, err := conn.Exec(t.Context(), "CREATE TABLE kept AS SELECT 42 AS answer")
	require.NoError(t, err)
	require.NoError(t, server.Stop())

	invalid := o
	invalid.Settings = map[string]string{"no_such_setting": "1"}
	_, err = embeddedpg.Start(t.Context(), invalid)
	require.ErrorContains(t, err, `unrecognized configuration parameter "no_such_setting"`)

	// A crash leaves the status file of a server that was ready.
	server = start(t, o)
	crashed := server.PID()
	require.NoError(t, syscall.Kill(crashed, syscall.SIGKILL))
	<-server.Exited()
	require.ErrorContains(t, server.Stop(), "the server ended by itself")
	server = start(t, o)
	var answer int
	require.NoError(t, connect(t, server.URL("postgres")).QueryRow(t.Context(), "SELECT answer FROM kept").Scan(&answer))
	require.Equal(t, 42, answer)
	require.NotEqual(t, crashed, server.PID())
	require.NoError(t, server.Stop())

	// A reset deletes the data and no other file.
	note := filepath.Join(o.DataDir, "note")
	require.NoError(t, os.WriteFile(note, nil, 0o600))
	reset := o
	reset.Reset = true
	server = start(t, reset)
	_, err = connect(t, server.URL("postgres")).Exec(t.Context(), "CREATE TABLE kept ()")
	require.NoError(t, err)
	require.NoError(t, server.Stop())
	require.FileExists(t, note)
	require.NoDirExists(t, filepath.Join(o.DataDir, "data.new"))

	version := filepath.Join(o.DataDir, "data", "PG_VERSION")
	require.NoError(t, os.WriteFile(version, []byte("9\n"), 0o600))
	_, err = embeddedpg.Start(t.Context(), o)
	require.ErrorContains(t, err, "the data in "+o.DataDir+" is of PostgreSQL 9")
}
