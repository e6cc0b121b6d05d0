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
	ErrInvalidKey = errors.New("an idempotency key is 16 to 255 visible ASCII characters")

	// ErrKeyReused means that the key was first used with another request (R2).
	ErrKeyReused = errors.New("the idempotency key was used with another request")

	ErrFinishedKeyReused = fmt.Errorf("%w, which is finished", ErrKeyReused)

	ErrInProgress = errors.New("a request with this idempotency key is in progress")

	// ErrLeaseLost is the ErrInProgress of a run that lost its lease (R7).
	ErrLeaseLost = fmt.Errorf("%w: the lease was lost", ErrInProgress)

	// ErrActionRequired is wrapped by the error of a step that waits for an action, such as a customer's
	// approval, until the ActionTimeout.
	ErrActionRequired = errors.New("an action outside of the service is required")

	// ErrNewerVersion is of a key that a newer version of the program wrote (R18).
	ErrNewerVersion = errors.New("the idempotency key was written by a newer version of the program, and only that version can continue it")

	// ErrNotFound is of a key that was never used, or reaped.
	ErrNotFound = errors.New("no such idempotency key")
)

// KeyExpiredError means that the key was used and its row is gone (R17).
type KeyExpiredError struct {
	Key  StoredKey
	Lost bool // what the request created was lost, so an operator expired the key
}

func (e *KeyExpiredError) Error() string {
	return "the idempotency key has expired; it was used for " + e.Key.Operation
}

// Errors that only the engine distinguishes.
var (
	errClaimConflict  = errors.New("the idempotency key exists")
	errConnectionLost = fmt.Errorf("%w: connection lost", postgres.ErrUnavailable)
	errCommitUnknown  = fmt.Errorf("%w: outcome of COMMIT unknown", postgres.ErrUnavailable)
	errNotCommitted   = fmt.Errorf("%w: not committed", postgres.ErrUnavailable)
	errNotReplicated  = fmt.Errorf("%w: committed, but not replicated", postgres.ErrUnavailable)
	errPanicked       = errors.New("the run panicked")
)

// translateOn is [postgres.Translate] with the errors of the engine.
func translateOn(conn *pgx.Conn, err error) error {
	switch state := postgres.SQLState(err); {
	case err == nil:
		return nil
	case state == "IK001": // of idempotency_assert, as IK002
		return errClaimConflict
	case state == "IK002":
		return ErrLeaseLost
	case notSent(err):
		return err
	case pgconn.Timeout(err):
		return fmt.Errorf("%w: %w", postgres.ErrUnavailable, err)
	case conn.IsClosed():
		return fmt.Errorf("%w: %w", errConnectionLost, err)
	case state == "": // a mistake of the caller
		return err
	case keyRowLocked(err):
		return fmt.Errorf("%w: %w", ErrInProgress, err)
	default:
		return postgres.Translate(err)
	}
}

// keyRowLocked reports whether a wait for a key's row met lock_timeout (R21): only then does
// PostgreSQL name the table in the error's context.
func keyRowLocked(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == postgres.LockNotAvailable && strings.Contains(pg.Where, `"idempotency_keys`)
}

// notSent reports whether an argument did not fit its statement, so pgx sent nothing.
func notSent(err error) bool {
	_, before := errors.AsType[pgx.ErrPreprocessingBatch](err)
	_, network := errors.AsType[net.Error](err)
	return before && !network && postgres.SQLState(err) == "" && !errors.Is(err, io.ErrUnexpectedEOF)
}

// commitMayHaveApplied reports whether a batch may be committed despite err: the connection
// broke, a callback failed, or a coordinator of Citus lost a worker (XX000).
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

// isRetryable reports whether a transaction conflicted with another one or was lost.
func isRetryable(err error) bool {
	state := postgres.SQLState(err)
	return state == postgres.SerializationFailure || state == postgres.DeadlockDetected ||
		errors.Is(err, errConnectionLost) || errors.Is(err, errCommitUnknown) || errors.Is(err, errNotCommitted)
}
