package boot

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

var (
	errPreparedStatements = errors.New("the pooler at DATABASE_URL uses transaction pooling and loses prepared statements: " +
		"add default_query_exec_mode=cache_describe to DATABASE_URL; see docs/scaling.md")

	errTransactionPooling = errors.New("the pooler at DATABASE_URL uses transaction pooling, and migrations hold a session lock: " +
		"connect to PostgreSQL itself, as in DATABASE_URL=postgres://user:pass@host:5432/orders orders migrate up")
)

// probes is the number of detection attempts. An idle pooler reuses the session that
// was returned last, so the first one detects it.
const probes = 5

// UsesTransactionPooling reports whether a pooler assigns one session to several
// connections. It returns an error if the pooler loses prepared statements that the
// connection uses.
func UsesTransactionPooling(ctx context.Context, pool *pgxpool.Pool) (bool, error) {
	acquired, err := pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer acquired.Release()
	one := acquired.Conn()
	pid, err := serverPID(ctx, one)
	if err != nil || pid == one.PgConn().PID() {
		return errors.Is(err, errPreparedStatements), err // the backend PID matches: there is no pooler
	}
	other, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig) // the pool may have only one connection
	if err != nil {
		return false, err
	}
	defer other.Close(context.WithoutCancel(ctx))
	seen := map[uint32]*pgx.Conn{}
	for range probes {
		for _, conn := range []*pgx.Conn{one, other} {
			pid, err := serverPID(ctx, conn)
			if err != nil {
				return errors.Is(err, errPreparedStatements), err
			}
			if first, found := seen[pid]; found && first != conn {
				return true, nil
			}
			seen[pid] = conn
		}
	}
	return false, nil
}

// serverPID returns the PID of the backend that executes a statement, or
// errPreparedStatements if the prepared statement is lost, or was prepared by another
// connection.
func serverPID(ctx context.Context, conn *pgx.Conn) (pid uint32, err error) {
	err = conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid)
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && (pg.Code == "26000" || pg.Code == "42P05"):
		return 0, errPreparedStatements
	case err != nil:
		return 0, fmt.Errorf("detect a pooler: %w", err)
	}
	return pid, nil
}

// withRemedy adds the remedy to PgBouncer's error for the timeouts of R21.
func withRemedy(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && strings.Contains(pg.Message, "unsupported startup parameter") {
		return fmt.Errorf("%w: add it to ignore_startup_parameters of the pooler; see docs/scaling.md", err)
	}
	return err
}
