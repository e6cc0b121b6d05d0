package postgres

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

var (
	// ErrUnavailable means that the database could not do its part because of its
	// state: no connection, a shutdown, a full disk, a timeout. The same request may
	// be sent again.
	ErrUnavailable = errors.New("the database is unavailable")

	// ErrLockTimeout is the ErrUnavailable of a statement that waited for a lock
	// longer than lock_timeout (R21).
	ErrLockTimeout = fmt.Errorf("%w: lock timeout", ErrUnavailable)
)

// SQLSTATEs that the program distinguishes.
const (
	DivisionByZero       = "22012"
	UniqueViolation      = "23505"
	ReadOnlyTransaction  = "25006"
	SerializationFailure = "40001"
	DeadlockDetected     = "40P01"
	LockNotAvailable     = "55P03"
)

// SQLState returns the SQLSTATE of a server error in err, or "".
func SQLState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// Translate wraps err in [ErrUnavailable] or [ErrLockTimeout] if its cause is the
// state of the database. It returns other errors, such as a violated constraint,
// unchanged. A driver error without an SQLSTATE means that no response arrived.
func Translate(err error) error {
	var connect *pgconn.ConnectError
	switch state := SQLState(err); {
	case err == nil, errors.Is(err, ErrUnavailable):
		return err
	case state == LockNotAvailable:
		return fmt.Errorf("%w: %w", ErrLockTimeout, err)
	case state == "",
		errors.As(err, &connect),     // the server refuses the session, whatever the reason
		state == ReadOnlyTransaction, // a demoted primary
		state == SerializationFailure,
		state == DeadlockDetected,
		changedResultType(err),
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

// changedResultType reports whether a migration has invalidated a prepared statement. pgx
// prepares it again for the next request. The error's message depends on the server's
// language, its routine does not.
func changedResultType(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "0A000" && pg.Routine == "RevalidateCachedQuery"
}

// unreplicated is the connection's custom data that records a COMMIT for which
// PostgreSQL stopped waiting for its synchronous standby: the transaction is
// visible, but the next failover may lose it.
const unreplicated = "postgres.unreplicated"

// recordUnreplicated listens for the warning that PostgreSQL sends before the
// response to such a COMMIT. The warning's text depends on the server's language,
// its routine does not.
func recordUnreplicated(config *pgxpool.Config) {
	next := config.ConnConfig.OnNotice
	config.ConnConfig.OnNotice = func(conn *pgconn.PgConn, notice *pgconn.Notice) {
		if notice.Routine == "SyncRepWaitForLSN" || strings.Contains(notice.Message, "synchronous replication") {
			conn.CustomData()[unreplicated] = true
		}
		if next != nil {
			next(conn, notice)
		}
	}
}

// ClearUnreplicated forgets the warnings of earlier statements on conn. Call it
// before COMMIT.
func ClearUnreplicated(conn *pgx.Conn) { delete(conn.PgConn().CustomData(), unreplicated) }

// Unreplicated reports whether a COMMIT on conn since [ClearUnreplicated] was not
// confirmed by the synchronous standby (R22).
func Unreplicated(conn *pgx.Conn) bool { return conn.PgConn().CustomData()[unreplicated] != nil }
