package orders

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

var (
	// ErrNotFound means that the account has no such order, or the order no such
	// refund.
	ErrNotFound = errors.New("no such order or refund")

	// ErrNothingToDo means that the account has no such unfinished key, so there is
	// nothing for an operator to do.
	ErrNothingToDo = errors.New("no such unfinished key")

	// ErrOutcomeUnknown means that the card may have been charged, or the refund made,
	// and the provider has not confirmed it yet. The same request finds out (R11).
	ErrOutcomeUnknown = errors.New("the outcome of the payment is not known yet")

	// ErrProviderUnavailable means that the provider did not accept the request. The
	// same request may be sent again (R11).
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

// FieldError is what is wrong with one member of a request.
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

// ValidationError lists everything wrong with a request.
type ValidationError struct{ Fields []FieldError }

func (e *ValidationError) Error() string {
	parts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		parts[i] = f.Pointer + " " + f.Detail
	}
	return "invalid request: " + strings.Join(parts, "; ")
}

// NotRefundableError means that nothing of an order can be refunded. It is not paid, or
// its refunds have used up the whole amount.
type NotRefundableError struct {
	Status Status // of the order
}

// Pending reports whether the order's payment is in progress, so that the same request
// may succeed later.
func (e *NotRefundableError) Pending() bool { return e.Status.Open() }

func (e *NotRefundableError) Error() string {
	return "nothing can be refunded of an order that is " + string(e.Status)
}

// ExceedsRemainingError means that a refund is larger than what remains of its order.
type ExceedsRemainingError struct {
	Remaining int64 // in the currency's smallest unit, at least 1
}

func (e *ExceedsRemainingError) Error() string {
	return fmt.Sprintf("at most %d of the order can be refunded", e.Remaining)
}

// mustExist replaces [ErrNotFound], which a client would receive as 404, for a row
// that must exist.
func mustExist(err error, what string, id uuid.UUID) error {
	if errors.Is(err, ErrNotFound) {
		return fmt.Errorf("%s %s is missing", what, id)
	}
	return err
}
