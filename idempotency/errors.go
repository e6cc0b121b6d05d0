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
	// ErrInvalidKey says that a string is no idempotency key. See [ParseKey].
	ErrInvalidKey = errors.New("an idempotency key is 16 to 255 visible ASCII characters")

	// ErrKeyReused says that the key was first used with another request. The
	// same key can never serve this one (R2).
	ErrKeyReused = errors.New("the idempotency key was used with another request")

	// ErrInProgress says that another run holds the key, or that this run lost
	// it to another one, see [ErrLeaseLost]. The same request may be sent again
	// shortly.
	ErrInProgress = errors.New("a request with this idempotency key is in progress")

	// ErrLeaseLost is the ErrInProgress of a run that lost its lease to another
	// one: a fenced statement found that the row is no longer as the run left it
	// (R7).
	ErrLeaseLost = fmt.Errorf("%w: the lease was lost", ErrInProgress)

	// ErrNewerVersion says that a newer version of the program left the key at a
	// recovery point, or with a fingerprint, that this one does not know. The
	// row is untouched (R18).
	ErrNewerVersion = errors.New("the idempotency key was written by a newer version")

	// ErrOverloaded says that there is too much to do, see [Gate]. No run began:
	// a new key was not claimed, and one that an earlier run left behind is as it
	// was. The same request may be sent again in a while.
	ErrOverloaded = errors.New("too many requests are under way")

	// ErrShareTaken says the same to an account that has its share of what is
	// under way, while there is room for others.
	ErrShareTaken = errors.New("the account has too many requests under way")

	// ErrNotFound says that the account has no such key: it was never used, or the
	// reaper has deleted it.
	ErrNotFound = errors.New("no such idempotency key")
)

// What the engine itself tells apart.
var (
	// errConnectionLost: the connection broke, or the server ended the session.
	errConnectionLost = fmt.Errorf("%w: connection lost", postgres.ErrUnavailable)

	// errCommitUnknown: neither success nor failure of a COMMIT was heard (R22).
	errCommitUnknown = fmt.Errorf("%w: outcome of COMMIT unknown", postgres.ErrUnavailable)

	// errNotCommitted: nothing became of the transaction.
	errNotCommitted = fmt.Errorf("%w: not committed", postgres.ErrUnavailable)

	// errNotReplicated: committed here, but no standby confirmed it (R22).
	errNotReplicated = fmt.Errorf("%w: committed, but not replicated", postgres.ErrUnavailable)

	// errPanicked is what the key remembers of a step that panicked.
	errPanicked = errors.New("the run panicked")
)

// translateOn is [postgres.Translate] for an error of a statement on conn, about
// which more is known: without an SQLSTATE, and with the connection still there, it
// is a mistake of the caller.
func translateOn(conn *pgx.Conn, err error) error {
	switch {
	case err == nil:
		return nil
	case unsent(err):
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

// keyRowLocked reports whether a statement met lock_timeout because another run
// holds the row of its key (R21). PostgreSQL names the table of the row in the
// error's context; a lock on the whole table has no such context.
func keyRowLocked(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == postgres.LockNotAvailable && strings.Contains(pg.Where, `"idempotency_keys`)
}

// unsent says that a batch never left, because an argument does not fit its
// statement. pgx closes the connection all the same.
func unsent(err error) bool {
	var before pgx.ErrPreprocessingBatch
	var network net.Error
	return errors.As(err, &before) && postgres.SQLState(err) == "" &&
		!errors.As(err, &network) && !errors.Is(err, io.ErrUnexpectedEOF)
}

// unanswered says whether a batch that ended in COMMIT may have been committed in
// spite of err. So it is when nobody read the answer: the connection broke, or a
// callback of a queued statement failed before.
func unanswered(conn *pgx.Conn, err error) bool {
	switch {
	case unsent(err):
		return false
	case conn.IsClosed():
		return true
	default:
		return postgres.SQLState(err) == "" && conn.PgConn().TxStatus() == 'I'
	}
}

// worthRetrying says whether a transaction that failed may pass when it is
// tried again: it only met others, or it got lost on the way. The fence makes
// that safe even where the first try went through unheard.
func worthRetrying(err error) bool {
	state := postgres.SQLState(err)
	return state == postgres.SerializationFailure || state == postgres.DeadlockDetected ||
		errors.Is(err, errConnectionLost) || errors.Is(err, errCommitUnknown) || errors.Is(err, errNotCommitted)
}
