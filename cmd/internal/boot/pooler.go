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
	errStatements = errors.New("a pooler in between (DATABASE_URL) shares sessions and forgets prepared statements: " +
		"add default_query_exec_mode=cache_describe to DATABASE_URL; docs/growing.md says more")

	errShared = errors.New("a pooler in between (DATABASE_URL) shares sessions, and migrations hold a lock that belongs to one: " +
		"give them the address of PostgreSQL itself, as in DATABASE_URL=postgres://user:pass@host:5432/orders orders migrate up")
)

// looks is how often a shared session is looked for. A pooler that is idle
// shows it at the first look, since it lends the session that came back last;
// one that is busy almost certainly at one of them.
const looks = 5

// SharesSessions says whether a pooler in between lends one session to several
// connections, as PgBouncer does in transaction mode. It fails when this
// connection's way of sending statements cannot live with that.
func SharesSessions(ctx context.Context, pool *pgxpool.Pool) (bool, error) {
	held, err := pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer held.Release()
	one := held.Conn()
	pid, err := serverPID(ctx, one)
	if err != nil || pid == one.PgConn().PID() {
		return errors.Is(err, errStatements), err // whom PostgreSQL greets itself has a session of its own
	}
	other, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig) // the pool may have no second one
	if err != nil {
		return false, err
	}
	defer other.Close(context.WithoutCancel(ctx))
	seen := map[uint32]*pgx.Conn{}
	for range looks {
		for _, conn := range []*pgx.Conn{one, other} {
			pid, err := serverPID(ctx, conn)
			if err != nil {
				return errors.Is(err, errStatements), err
			}
			if by, met := seen[pid]; met && by != conn {
				return true, nil
			}
			seen[pid] = conn
		}
	}
	return false, nil
}

// serverPID asks which process of the server does the work. The statement is
// prepared like any other. When it then is not there, or was there already
// because somebody else had prepared it, the error is errStatements.
func serverPID(ctx context.Context, conn *pgx.Conn) (pid uint32, err error) {
	err = conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid)
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && (pg.Code == "26000" || pg.Code == "42P05"):
		return 0, errStatements
	case err != nil:
		return 0, fmt.Errorf("look for a pooler: %w", err)
	}
	return pid, nil
}

// explain adds the remedy to what PgBouncer says to a session that asks for the
// timeouts of R21.
func explain(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && strings.Contains(pg.Message, "unsupported startup parameter") {
		return fmt.Errorf("%w: name it in ignore_startup_parameters of the pooler; docs/growing.md says more", err)
	}
	return err
}
