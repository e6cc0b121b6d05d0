package httpjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
)

var (
	// ErrNotFound means that the account has no such resource.
	ErrNotFound = errors.New("no such resource")

	// ErrOutcomeUnknown means that the request may have had its effect (R11, final only).
	ErrOutcomeUnknown = errors.New("the outcome is not known yet")

	// ErrProviderUnavailable means that the failed call had no effect (R11, final only).
	ErrProviderUnavailable = errors.New("the payment provider is unavailable")
)

// Rejection is the error of a request that an operation rejects, so that its key stays unused. The API responds with the
// problem of this slug.
type Rejection struct {
	Slug, Detail string
	Soon         bool // the same request can succeed in a second

	OrderID   *uuid.UUID // members of the problem, unless zero
	Remaining int64
}

func (r *Rejection) Error() string { return r.Slug + ": " + r.Detail }

// ProviderError is the error of a step without a final outcome.
type ProviderError struct {
	Kind       error // ErrOutcomeUnknown or ErrProviderUnavailable
	RetryAfter time.Duration
	Cause      error // it is logged, so it must not contain secrets
}

func (e *ProviderError) Error() string { return fmt.Sprintf("%v: %v", e.Kind, e.Cause) }

func (e *ProviderError) Unwrap() []error { return []error{e.Kind, e.Cause} }

// ActionRequiredError means that the request waits for an action, such as an approval.
type ActionRequiredError struct {
	Action json.Marshaler // may hold a secret: never store or log it
}

func (e *ActionRequiredError) Error() string { return idempotency.ErrActionRequired.Error() }

func (e *ActionRequiredError) Unwrap() error { return idempotency.ErrActionRequired }

// Field is an invalid member of a request.
type Field struct {
	Pointer string `json:"pointer"` // RFC 6901
	Code    string `json:"code"`
	Detail  string `json:"detail"` // for people
}

// Codes of a [Field]. openapi.yaml documents them.
const (
	CodeRequired           = "required"
	CodeUnknownMember      = "unknown_member"
	CodeInvalidType        = "invalid_type"
	CodeInvalidFormat      = "invalid_format"
	CodeInvalidValue       = "invalid_value" // not one of a list
	CodeTooShort           = "too_short"
	CodeTooLong            = "too_long"
	CodeOutOfRange         = "out_of_range"
	CodeUnknownParameter   = "unknown_parameter"
	CodeDuplicateParameter = "duplicate_parameter"
	CodeNotFound           = "not_found" // a cursor
)

// InvalidError lists the invalid members of a request.
type InvalidError struct{ Fields []Field }

// Invalid returns the [*InvalidError] of one member.
func Invalid(pointer, code, detail string) error {
	return &InvalidError{Fields: []Field{{Pointer: pointer, Code: code, Detail: detail}}}
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("invalid request: %v", e.Fields)
}
