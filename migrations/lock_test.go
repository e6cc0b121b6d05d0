package migrations_test

import (
	"bytes"
	"io/fs"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pressly/goose/v3/lock"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/migrations"
	"example.com/orders-api/migrations/dbtest"
)

// lines passes each log line on.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("waiting for other sessions")) {
		l <- string(line)
	}
	return len(line), nil
}

// A session that is not used any more, such as that of a killed process, may hold the lock of the migrations.
func TestMigrator_namesTheHolderOfTheLock(t *testing.T) {
	t.Parallel()
	pool := dbtest.Empty(t)
	holder, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	require.NoError(t, err)
	_, err = holder.Exec(t.Context(), "SELECT pg_advisory_lock($1)", lock.DefaultLockID)
	require.NoError(t, err)
	reports, applied := make(lines), make(chan error)
	m, err := migrations.New(pool, slog.New(slog.NewTextHandler(reports, nil)))
	require.NoError(t, err)
	defer m.Close()
	go func() {
		_, err := m.Up(t.Context())
		applied <- err
	}()
	require.Contains(t, <-reports, "pid "+strconv.Itoa(int(holder.PgConn().PID()))+" ")
	require.NoError(t, holder.Close(t.Context()))
	for {
		select {
		case <-reports: // one that began before the lock was free
		case err := <-applied:
			require.NoError(t, err)
			return
		}
	}
}

// An index is built beside a transaction that is older, such as that of pg_dump, however long it takes,
// and the log has its session.
func TestMigrator_indexBesideABackup(t *testing.T) {
	t.Parallel()
	pool := dbtest.Empty(t, func(c *pgxpool.Config) {
		c.MaxConns = 8
		c.ConnConfig.RuntimeParams["lock_timeout"] = "100"
		c.ConnConfig.RuntimeParams["statement_timeout"] = "200"
	})
	m := newMigrator(t, pool)
	_, err := m.Up(t.Context())
	require.NoError(t, err)
	for name := ""; name != "00016_after_the_response_indexes.sql"; { // a shop's own migrations are newer
		name, err = m.Down(t.Context())
		require.NoError(t, err)
	}
	backup, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	_, err = backup.Exec(t.Context(), "SELECT count(*) FROM orders")
	require.NoError(t, err)
	reports, applied := make(lines), make(chan error)
	m, err = migrations.New(pool, slog.New(slog.NewTextHandler(reports, nil)))
	require.NoError(t, err)
	defer m.Close()
	go func() {
		_, err := m.Up(t.Context())
		applied <- err
	}()
	pid := " " + strconv.Itoa(int(backup.Conn().PgConn().PID())) + " "
	for waiting := true; waiting; { // longer than both timeouts
		select {
		case line := <-reports:
			waiting = !strings.Contains(line, pid)
		case err := <-applied:
			require.Fail(t, "it did not wait", "%v", err)
		}
	}
	require.NoError(t, backup.Rollback(t.Context()))
	for {
		select {
		case <-reports:
		case err := <-applied:
			require.NoError(t, err)
			return
		}
	}
}

// CREATE INDEX CONCURRENTLY would never end beside a backup if it had a lock_timeout.
func TestMigrations_concurrentlyWithoutLockTimeout(t *testing.T) {
	t.Parallel()
	for _, name := range fileNames(t) {
		file, err := fs.ReadFile(migrations.FS(), name)
		require.NoError(t, err)
		up, down, _ := strings.Cut(string(file), "-- +goose Down")
		for _, part := range []string{up, down} {
			if before, _, found := strings.Cut(part, " CONCURRENTLY "); found {
				require.Contains(t, before, "\nSET lock_timeout = 0;\n", name)
				require.Contains(t, part, "\nRESET lock_timeout;\n", name)
			}
		}
	}
}
