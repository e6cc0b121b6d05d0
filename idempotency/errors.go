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

var (
	// ErrInvalidKey is the error of [ParseKey].
	ErrInvalidKey = errors.New("an idempotency key is 16 to 255 visible ASCII characters")

	// ErrKeyReused means that the key was first used with another request (R2).
	ErrKeyReused = errors.New("the idempotency key was used with another request")

	// ErrFinishedKeyReused is the ErrKeyReused of a finished key.
	ErrFinishedKeyReused = fmt.Errorf("%w, which is finished", ErrKeyReused)

	// ErrInProgress means that another run holds the key. Send the same request again
	// shortly.
	ErrInProgress = errors.New("a request with this idempotency key is in progress")

	// ErrLeaseLost is the ErrInProgress of a run that lost its lease (R7).
	ErrLeaseLost = fmt.Errorf("%w: the lease was lost", ErrInProgress)

	// ErrActionRequired is wrapped by the error of a step that waits for an action
	// outside of the service, such as a customer's approval. The completer runs such
	// a key rarely and without limit, so the step must end the wait, see
	// [CompleterConfig.ActionTimeout].
	ErrActionRequired = errors.New("an action outside of the service is required")

	// ErrNewerVersion means that a newer version of the program wrote the key, which
	// is unchanged (R18).
	ErrNewerVersion = errors.New("the idempotency key was written by a newer version of the program, and only that version can continue it")

	// ErrNotFound means that the account has no such key: never used, or reaped.
	ErrNotFound = errors.New("no such idempotency key")
)

// KeyExpiredError means that the key was used and its row is gone (R17).
type KeyExpiredError struct {
	Key Status // what is known of the key: ids, operation, path and times
}

func (e *KeyExpiredError) Error() string {
	return "the idempotency key has expired; it was used for " + e.Key.Operation
}

// Errors that only the engine distinguishes.
var (
	// The connection broke, or the server ended the session.
	errConnectionLost = fmt.Errorf("%w: connection lost", postgres.ErrUnavailable)

	// No acknowledgement of the COMMIT arrived (R22).
	errCommitUnknown = fmt.Errorf("%w: outcome of COMMIT unknown", postgres.ErrUnavailable)

	errNotCommitted = fmt.Errorf("%w: not committed", postgres.ErrUnavailable)

	// Committed on this server, but no standby confirmed it (R22).
	errNotReplicated = fmt.Errorf("%w: committed, but not replicated", postgres.ErrUnavailable)

	// Stored with the key of a run that panicked.
	errPanicked = errors.New("the run panicked")
)

// translateOn is [postgres.Translate] with the state of the connection. An error
// without an SQLSTATE on an open connection is a mistake of the caller.
func translateOn(conn *pgx.Conn, err error) error {
	switch {
	case err == nil:
		return nil
	case notSent(err):
		return err
	case pgconn.Timeout(err):
		return fmt.Errorf("%w: %w", postgres.ErrUnavailable, err)
	case conn.IsClosed():
		return fmt.Errorf("%w: %w", errConnectionLost, err)
	case postgres.SQLState(err) == "", errors.Is(err, ErrInProgress):
		return err
	case keyRowLocked(err):
		return fmt.Errorf("%w: %w", ErrInProgress, err)
	default:
		return postgres.Translate(err)
	}
}

// keyRowLocked reports whether a wait for a key's row met lock_timeout (R21).
// PostgreSQL names the table in the error's context, but not for a lock on the whole
// table.
func keyRowLocked(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == postgres.LockNotAvailable && strings.Contains(pg.Where, `"idempotency_keys`)
}

// notSent reports whether an argument did not fit its statement. pgx then closes the
// connection without sending the batch.
func notSent(err error) bool {
	_, before := errors.AsType[pgx.ErrPreprocessingBatch](err)
	_, network := errors.AsType[net.Error](err)
	return before && !network && postgres.SQLState(err) == "" && !errors.Is(err, io.ErrUnexpectedEOF)
}

// commitMayHaveApplied reports whether a batch with COMMIT may have been committed
// despite err: the connection broke before the acknowledgement, or a callback failed, or
// the server lost track of its COMMIT. The last is the error of a coordinator of Citus
// that loses a worker. After an error of another statement, the transaction is open.
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
// The fence makes a repetition safe.
func isRetryable(err error) bool {
	state := postgres.SQLState(err)
	return state == postgres.SerializationFailure || state == postgres.DeadlockDetected ||
		errors.Is(err, errConnectionLost) || errors.Is(err, errCommitUnknown) || errors.Is(err, errNotCommitted)
}
