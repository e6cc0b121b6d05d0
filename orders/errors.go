package orders

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
)

var (
	// ErrNotFound says that the account has no such order, or the order no such
	// refund.
	ErrNotFound = errors.New("no such order or refund")

	// ErrNotUnfinished says that the account has no such key, or that it is
	// finished: there is nothing for an operator to do.
	ErrNotUnfinished = errors.New("no such unfinished key")

	// ErrOutcomeUnknown says that the card may have been charged, or the refund
	// made, and the provider has not said so yet. The same request finds out (R11).
	ErrOutcomeUnknown = errors.New("the outcome of the payment is not known yet")

	// ErrProviderUnavailable says that the provider did not take the request and
	// that no money moved. The same request may be sent again (R11).
	ErrProviderUnavailable = errors.New("the payment provider is unavailable")
)

// ProviderError is a step that ended without an outcome. It wraps
// [ErrOutcomeUnknown] or [ErrProviderUnavailable].
type ProviderError struct {
	Kind       error
	RetryAfter time.Duration // how long the provider is likely to need
	Cause      error         // for the log; holds no secret (R13)
}

func (e *ProviderError) Error() string { return fmt.Sprintf("%v: %v", e.Kind, e.Cause) }

// Unwrap makes errors.Is find the kind and the cause.
func (e *ProviderError) Unwrap() []error { return []error{e.Kind, e.Cause} }

// KeyExpiredError says that the key made an order, or a refund of it, long ago
// and is forgotten by now. It never executes again (R17).
type KeyExpiredError struct {
	OrderID  uuid.UUID
	RefundID uuid.UUID // uuid.Nil when the key made the order
}

func (e *KeyExpiredError) Error() string {
	if e.RefundID != uuid.Nil {
		return fmt.Sprintf("the idempotency key has expired; it made refund %s of order %s", e.RefundID, e.OrderID)
	}
	return fmt.Sprintf("the idempotency key has expired; it made order %s", e.OrderID)
}

// FieldError is what is wrong with one member of a request.
type FieldError struct {
	Pointer string `json:"pointer"` // JSON pointer (RFC 6901) into the request
	Message string `json:"message"`
}

// ValidationError lists everything wrong with a request.
type ValidationError struct{ Fields []FieldError }

func (e *ValidationError) Error() string {
	parts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		parts[i] = f.Pointer + " " + f.Message
	}
	return "invalid request: " + strings.Join(parts, "; ")
}

// resource is what a key can make.
type resource int

const (
	nothing resource = iota
	anOrder
	aRefund
)

// keyMade says what the key of a new order made before, if err is of the
// constraints that outlive a reaped key: the claim succeeded, but what the key
// made is there already (R17). The order's id derives from the key, so the
// primary key may speak first; for a refund see insertTx.
func keyMade(err error) resource {
	var pg *pgconn.PgError
	switch {
	case !errors.As(err, &pg):
		return nothing
	case pg.Code == "23505" && (pg.ConstraintName == "orders_idempotency_key_unique" || pg.ConstraintName == "orders_pkey"):
		return anOrder
	case pg.Code == "23502" && pg.TableName == "orders" && pg.ColumnName == "id":
		return aRefund
	default:
		return nothing
	}
}
