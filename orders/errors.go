package orders

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

var (
	// ErrNotFound means that the account has no such order or refund.
	ErrNotFound = errors.New("no such order or refund")

	// ErrNothingToDo means that the account has no such unfinished key.
	ErrNothingToDo = errors.New("no such unfinished key")

	// ErrNotResolvable means that the key's operation has no [Registration.Resolve].
	ErrNotResolvable = errors.New("its operation has no way to be resolved (Registration.Resolve), only retried")

	// ErrOutcomeUnknown means that the request may have taken effect: the card may have been
	// charged, or the refund made. A retry resolves the outcome (R11).
	ErrOutcomeUnknown = errors.New("the outcome is not known yet")

	// ErrProviderUnavailable means that the failed call has moved no money (R11).
	ErrProviderUnavailable = errors.New("the payment provider is unavailable")
)

// ProviderError is the error of a step without a final outcome. It wraps
// [ErrOutcomeUnknown] or [ErrProviderUnavailable].
type ProviderError struct {
	Kind       error
	RetryAfter time.Duration
	Cause      error // for the log; holds no secret (R13)
}

func (e *ProviderError) Error() string { return fmt.Sprintf("%v: %v", e.Kind, e.Cause) }

// Unwrap returns the kind and the cause.
func (e *ProviderError) Unwrap() []error { return []error{e.Kind, e.Cause} }

// FieldError is an invalid member of a request.
type FieldError struct {
	Pointer string `json:"pointer"` // JSON pointer (RFC 6901) into the request
	Code    string `json:"code"`    // the violated rule, for programs
	Detail  string `json:"detail"`  // for people
}

// Codes of a [FieldError]. openapi.yaml documents them.
const (
	CodeRequired           = "required"
	CodeUnknownMember      = "unknown_member"
	CodeInvalidType        = "invalid_type"
	CodeInvalidFormat      = "invalid_format"
	CodeInvalidValue       = "invalid_value" // not one of a list
	CodeTooShort           = "too_short"     // characters or items
	CodeTooLong            = "too_long"      // characters, items or members
	CodeOutOfRange         = "out_of_range"  // of a number
	CodeUnknownParameter   = "unknown_parameter"
	CodeDuplicateParameter = "duplicate_parameter"
	CodeNotFound           = "not_found" // a cursor
)

// ValidationError lists the invalid members of a request.
type ValidationError struct{ Fields []FieldError }

func (e *ValidationError) Error() string {
	return fmt.Sprintf("invalid request: %v", e.Fields)
}

// NotRefundableError means that an order is not paid, or completely refunded.
type NotRefundableError struct {
	Status Status // of the order
}

// Pending reports whether the same request may succeed later.
func (e *NotRefundableError) Pending() bool { return e.Status.Open() }

func (e *NotRefundableError) Error() string {
	return "nothing can be refunded of an order that is " + string(e.Status)
}

// ExceedsRemainingError means that a refund exceeds the remaining amount of its order.
type ExceedsRemainingError struct {
	Remaining int64 // in the currency's smallest unit, at least 1
}

func (e *ExceedsRemainingError) Error() string {
	return fmt.Sprintf("at most %d of the order can be refunded", e.Remaining)
}

func mustExist(err error, what string, id uuid.UUID) error {
	if errors.Is(err, ErrNotFound) {
		return fmt.Errorf("%s %s is missing", what, id)
	}
	return err
}
