package migrations

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3/lock"

	"example.com/orders-api/internal/postgres"
)

// begin prepares the session of the migrations. They may take longer than the timeouts of the program's
// sessions, except lock_timeout, because other sessions queue behind a waiting ALTER TABLE.
func (m *Migrator) begin(ctx context.Context, conn *pgx.Conn) error {
	m.pid.Store(conn.PgConn().PID())
	_, err := conn.Exec(ctx, "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0")
	return err
}

// reportInterval is shorter than lock_timeout, so that a report precedes its error.
const reportInterval = time.Second

// report logs, until ctx ends, which sessions block the migrations, because an abandoned session or a backup
// can do so for hours.
func (m *Migrator) report(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(reportInterval):
		}
		if sessions := m.blockers(ctx); len(sessions) > 0 {
			m.logger.WarnContext(ctx, "waiting for other sessions; end one with SELECT pg_terminate_backend(pid) if nothing uses it", "sessions", sessions)
		}
	}
}

// blockers describes the sessions that hold goose's lock, or one for which the migrations wait.
func (m *Migrator) blockers(ctx context.Context) []string {
	found, _ := postgres.Collect(ctx, m.pool, "find the sessions that block", pgx.RowTo[string], `
SELECT concat_ws(' ', 'pid', pid, usename, application_name, client_addr, state, 'since', date_trunc('second', coalesce(xact_start, state_change, backend_start)))
  FROM pg_stat_activity AS a
 WHERE datname = current_database()
   AND (pid = ANY (pg_blocking_pids($1))
        OR pid <> $1 AND EXISTS (SELECT FROM pg_locks AS l WHERE l.pid = a.pid AND granted AND locktype = 'advisory' AND objid::bigint = $2))`,
		m.pid.Load(), lock.DefaultLockID)
	return found
}
