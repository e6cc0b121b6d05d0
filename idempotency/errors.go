package idempotency

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/orders-api/internal/postgres"
)

// The errors of the engine.
var (
	// ErrKeyReused means that the key was first used with another request.
	ErrKeyReused = errors.New("the idempotency key was used with another request")

	ErrFinishedKeyReused = fmt.Errorf("%w, which is finished", ErrKeyReused)

	ErrInProgress = errors.New("a request with this idempotency key is in progress")

	// ErrLeaseLost means that another run has taken over the lease. It wraps ErrInProgress.
	ErrLeaseLost = fmt.Errorf("%w: the lease was lost", ErrInProgress)

	// ErrActionRequired means that the request waits for an action, such as a customer's approval,
	// at most until the ActionTimeout. The errors of steps wrap it.
	ErrActionRequired = errors.New("an action outside of the service is required")

	// ErrNewerVersion means that this version does not know the key's operation or recovery point, so a newer one
	// wrote it.
	ErrNewerVersion = errors.New("the idempotency key was written by a newer version of the program, and only that version can continue it")

	// ErrNotFound means that the key was never used, or that a reaped one cannot be resumed.
	ErrNotFound = errors.New("no such idempotency key")
)

// Errors that only the engine distinguishes.
var (
	errClaimConflict = errors.New("the idempotency key exists")
	errCommitUnknown = fmt.Errorf("%w: outcome of COMMIT unknown", postgres.ErrUnavailable)
	errNotCommitted  = fmt.Errorf("%w: not committed", postgres.ErrUnavailable)
	errNotReplicated = fmt.Errorf("%w: committed, but not replicated", postgres.ErrUnavailable)
	errPanicked      = errors.New("the run panicked")
)

// translateOn adds the errors of the engine to [postgres.Translate].
func translateOn(conn *pgx.Conn, err error) error {
	switch state := postgres.SQLState(err); {
	case err == nil:
		return nil
	case state == "IK001": // idempotency_assert raises both
		return errClaimConflict
	case state == "IK002":
		return ErrLeaseLost
	case notSent(err):
		return err
	case pgconn.Timeout(err), conn.IsClosed():
		return fmt.Errorf("%w: %w", postgres.ErrUnavailable, err)
	case state == "": // a mistake of the caller
		return err
	case keyRowLocked(err):
		return fmt.Errorf("%w: %w", ErrInProgress, err)
	default:
		return postgres.Translate(err)
	}
}

// keyRowLocked reports whether a wait for a key's row exceeded lock_timeout (R21, session timeouts).
// Only then does PostgreSQL name the table in the error's context, between the quotation marks of its language.
func keyRowLocked(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == postgres.LockNotAvailable && strings.Contains(pg.Where, "idempotency_keys")
}

// notSent reports whether pgx sent nothing, because an argument did not fit its statement.
func notSent(err error) bool {
	_, before := errors.AsType[pgx.ErrPreprocessingBatch](err)
	_, network := errors.AsType[net.Error](err)
	return before && !network && postgres.SQLState(err) == "" && !errors.Is(err, io.ErrUnexpectedEOF)
}

// commitMayHaveApplied reports whether a batch may be committed despite err, because the
// connection broke or a callback failed. On Citus, an internal error (XX000) may mean that the
// coordinator lost the schema's server during COMMIT.
func commitMayHaveApplied(conn *pgx.Conn, err error) bool {
	switch state := postgres.SQLState(err); {
	case notSent(err):
		return false
	case conn.IsClosed():
		return true
	default:
		return conn.PgConn().TxStatus() == 'I' && (state == "" || state == postgres.InternalError)
	}
}
