package migrations

import (
	"context"
	"fmt"
	"sync"
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

const reportInterval = 3 * time.Second

// report logs every few seconds which sessions block the migrations, because an abandoned session or a
// backup can do so for hours. done ends that, and adds them to an error.
func (m *Migrator) report(ctx context.Context) (done func(error) error) {
	reporting, stop := context.WithCancel(ctx)
	var reports sync.WaitGroup
	reports.Go(func() {
		for {
			select {
			case <-reporting.Done():
				return
			case <-time.After(reportInterval):
			}
			if sessions := m.blockers(reporting); len(sessions) > 0 {
				m.logger.WarnContext(ctx, "waiting for other sessions; end one with SELECT pg_terminate_backend(pid) if nothing uses it", "sessions", sessions)
			}
		}
	})
	return func(err error) error {
		stop()
		reports.Wait()
		if err == nil {
			return nil
		}
		if sessions := m.blockers(ctx); len(sessions) > 0 {
			err = fmt.Errorf("%w; other sessions hold locks: %q", err, sessions)
		}
		return err
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
