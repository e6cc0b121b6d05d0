package httpjson

import "fmt"

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
