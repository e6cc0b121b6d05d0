package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Queuer queues statements for one round trip. It is a [pgx.Batch], or the transaction of a
// step.
type Queuer interface {
	Queue(query string, arguments ...any) *pgx.QueuedQuery
}

// Collect returns the rows of a query. purpose begins its error.
func Collect[T any](
	ctx context.Context, pool *pgxpool.Pool, purpose string, scan pgx.RowToFunc[T], query string, arguments ...any,
) ([]T, error) {
	list, err := pgx.CollectRows(Query(ctx, pool, query, arguments...), scan)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", purpose, Translate(err))
	}
	return list, nil
}

// Query sends a query on a session of the pool, see [AwaitSession]. The rows return its error.
func Query(ctx context.Context, pool *pgxpool.Pool, query string, arguments ...any) (rows pgx.Rows) {
	_ = AwaitSession(ctx, pool, func() (err error) {
		rows, err = pool.Query(ctx, query, arguments...) //nolint:sqlclosecheck // the caller closes them
		return err
	})
	return rows
}

// AwaitSession calls take, which takes a session of the pool. While the server accepts no further
// session, because of max_connections or the CONNECTION LIMIT of the role or of the database, it waits
// for a session that the pool has. By itself, pgxpool would fail although that session is soon idle again.
func AwaitSession(ctx context.Context, pool *pgxpool.Pool, take func() error) error {
	for {
		err := take()
		if SQLState(err) != TooManyConnections || pool.Stat().AcquiredConns()+pool.Stat().IdleConns() == 0 {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// NowIf returns the argument n with which "now() + $n::interval" is now() if set, and NULL otherwise.
// A CASE would be simpler, but Citus rejects now() within CASE in an UPDATE.
func NowIf(set bool) *time.Duration {
	if set {
		return new(time.Duration)
	}
	return nil
}

// CleanText returns at most limit characters of s, with "?" for what a text column cannot store.
func CleanText(s string, limit int) string {
	characters := []rune(strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "?"), "?"))
	return string(characters[:min(len(characters), limit)])
}

var (
	// ErrUnavailable means that the state of the database prevented a statement, such as a
	// shutdown, a full disk or a timeout.
	ErrUnavailable = errors.New("the database is unavailable")

	// ErrLockTimeout means that a statement exceeded lock_timeout. It wraps ErrUnavailable.
	ErrLockTimeout = fmt.Errorf("%w: lock timeout", ErrUnavailable)
)

// SQLSTATEs that the program distinguishes.
const (
	ForeignKeyViolation = "23503"
	UniqueViolation     = "23505"
	ReadOnlyTransaction = "25006"
	UndefinedTable      = "42P01"
	TooManyConnections  = "53300"
	LockNotAvailable    = "55P03"
	InternalError       = "XX000"
)

// SQLState returns the SQLSTATE of a server error in err, or "".
func SQLState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// Constraint returns the name of the constraint that err violated, or "". Citus reports no name, so
// there it is the message, which contains the name.
func Constraint(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return cmp.Or(pg.ConstraintName, pg.Message)
	}
	return ""
}

// Translate wraps err in [ErrUnavailable] or [ErrLockTimeout] if its cause is the state of the
// database. An error without an SQLSTATE is one of them, because no response has arrived. The exception
// is an error about a row that has arrived, which the program cannot read.
func Translate(err error) error {
	_, connect := errors.AsType[*pgconn.ConnectError](err)
	_, unreadable := errors.AsType[pgx.ScanArgError](err)
	switch state := SQLState(err); {
	case err == nil, errors.Is(err, ErrUnavailable), unreadable, errors.Is(err, pgx.ErrNoRows), errors.Is(err, pgx.ErrTooManyRows):
		return err
	case state == LockNotAvailable:
		return fmt.Errorf("%w: %w", ErrLockTimeout, err)
	case state == "26000", state == "42P05": // a prepared statement is missing, or is another session's
		return fmt.Errorf("%w: prepared statements do not work behind this pooler: "+
			"set default_query_exec_mode=cache_describe in DATABASE_URL: %w", ErrUnavailable, err)
	case state == "",
		connect,                         // the server refuses the session
		state == ReadOnlyTransaction,    // a demoted primary
		state == "40001",                // serialization failure
		state == "40P01",                // deadlock
		state == "0A000",                // a migration changed what a prepared statement returns; pgx prepares it again
		state == "57014",                // statement_timeout, or cancelled
		state == "25P03",                // idle_in_transaction_session_timeout
		strings.HasPrefix(state, "08"),  // connection exception
		strings.HasPrefix(state, "53"),  // out of connections, memory or disk
		strings.HasPrefix(state, "57P"), // shutdown, crash, still starting
		strings.HasPrefix(state, "58"),  // I/O error
		strings.HasPrefix(state, "XX"):  // internal error
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	default:
		return err
	}
}

// unreplicated marks a connection after a COMMIT that the synchronous standby did not confirm:
// it is visible, but the next failover may lose it.
const unreplicated = "postgres.unreplicated"

// ClearUnreplicated removes the mark of an earlier COMMIT.
func ClearUnreplicated(conn *pgx.Conn) { delete(conn.PgConn().CustomData(), unreplicated) }

// Unreplicated reports whether a COMMIT since [ClearUnreplicated] was not confirmed by a standby
// (R22, three outcomes of COMMIT).
func Unreplicated(conn *pgx.Conn) bool { return conn.PgConn().CustomData()[unreplicated] != nil }
