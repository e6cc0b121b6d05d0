package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pressly/goose/v3/lock"

	"example.com/orders-api/internal/postgres"
)

const (
	lockTimeout    = 2 * time.Minute
	reportInterval = 3 * time.Second
)

// sessionLock lets one Migrator at a time migrate, by goose's advisory lock. Meanwhile it logs which
// sessions the Migrator waits for, because an abandoned session or a backup can block it for hours.
type sessionLock struct {
	pool   *pgxpool.Pool
	logger *slog.Logger
	stop   func() // ends the reports
}

// SessionLock implements [lock.SessionLocker]. It tries instead of waiting, because CREATE INDEX
// CONCURRENTLY of the lock's holder would wait for the snapshot of a waiting statement. A migration may
// take longer than the timeouts of the program's sessions, except lock_timeout, because other sessions
// queue behind a waiting ALTER TABLE.
func (l *sessionLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	var pid int32
	if err := conn.QueryRowContext(ctx, `
SELECT pg_backend_pid()
  FROM set_config('statement_timeout', '0', false) AS a,
       set_config('idle_in_transaction_session_timeout', '0', false) AS b`).Scan(&pid); err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	reporting, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	l.stop = func() {
		stop()
		<-done
	}
	go func() {
		defer close(done)
		for {
			select {
			case <-reporting.Done():
				return
			case <-time.After(reportInterval):
			}
			if blockers, err := l.blockers(reporting, pid); err == nil && len(blockers) > 0 {
				l.logger.WarnContext(ctx, "waiting for other sessions; end one with SELECT pg_terminate_backend(pid) if nothing uses it", "sessions", blockers)
			}
		}
	}()
	err := l.try(ctx, conn, pid)
	if err != nil {
		l.stop()
	}
	return err
}

func (l *sessionLock) try(ctx context.Context, conn *sql.Conn, pid int32) error {
	for deadline := time.Now().Add(lockTimeout); ; {
		var locked bool
		err := conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", lock.DefaultLockID).Scan(&locked)
		if err != nil || locked {
			return err
		}
		if time.Now().After(deadline) {
			blockers, err := l.blockers(ctx, pid)
			return errors.Join(fmt.Errorf("for %s, another session has held the lock of the migrations: %q", lockTimeout, blockers), err)
		}
		select {
		case <-time.After(time.Second / 2):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// blockers describes the sessions that hold the lock of the migrations, or a lock for which the session
// pid waits.
func (l *sessionLock) blockers(ctx context.Context, pid int32) ([]string, error) {
	return postgres.Collect(ctx, l.pool, "find the sessions that block", pgx.RowTo[string], `
SELECT concat_ws(' ', 'pid', pid, usename, application_name, client_addr, state, 'since', date_trunc('second', coalesce(xact_start, state_change, backend_start)))
  FROM pg_stat_activity
 WHERE pid = ANY (pg_blocking_pids($1))
    OR pid IN (SELECT l.pid
                 FROM pg_locks AS l
                WHERE locktype = 'advisory'
                  AND granted
                  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                  AND (classid::bigint << 32 | objid::bigint) = $2
                  AND l.pid <> $1)`, pid, lock.DefaultLockID)
}

// SessionUnlock implements [lock.SessionLocker].
func (l *sessionLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	l.stop()
	_, err := conn.ExecContext(ctx, "SELECT pg_advisory_unlock($1)", lock.DefaultLockID)
	for _, name := range []string{"statement_timeout", "idle_in_transaction_session_timeout"} {
		if err == nil {
			_, err = conn.ExecContext(ctx, "RESET "+name)
		}
	}
	return err
}
