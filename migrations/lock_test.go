package migrations_test

import (
	"bytes"
	"io/fs"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
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
