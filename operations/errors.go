package operations

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"example.com/orders-api/idempotency"
)

var (
	// ErrNotFound means that the account has no such resource.
	ErrNotFound = errors.New("no such resource")

	// ErrNoUnfinishedKey means that the account has no such unfinished key.
	ErrNoUnfinishedKey = errors.New("no such unfinished key")

	// ErrNotResolvable means that the key's operation has no [Registration.Resolve].
	ErrNotResolvable = errors.New("its operation has no way to be resolved (Registration.Resolve), only retried")

	// ErrOutcomeUnknown means that the request may have taken effect. A retry resolves it (R11).
	ErrOutcomeUnknown = errors.New("the outcome is not known yet")

	// ErrProviderUnavailable means that the failed call has had no effect (R11).
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

// ActionRequiredError means that the request waits for an action, such as a customer's
// approval. It wraps [idempotency.ErrActionRequired].
type ActionRequiredError struct {
	Action json.Marshaler // never store or log it: it may hold a secret
}

func (e *ActionRequiredError) Error() string { return idempotency.ErrActionRequired.Error() }

func (e *ActionRequiredError) Unwrap() error { return idempotency.ErrActionRequired }

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
