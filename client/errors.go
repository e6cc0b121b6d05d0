package client

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrInvalidKey says that a key is not 16 to 255 visible ASCII characters.
	// Nothing was sent.
	ErrInvalidKey = errors.New("client: invalid idempotency key")

	// ErrUnreadable says that what came back is no answer of the API's.
	ErrUnreadable = errors.New("client: unreadable response")
)

// Retry is a problem's retry member: what a client may do next.
type Retry string

const (
	// RetrySameKey asks for the same request under the same key again.
	RetrySameKey Retry = "same-key"
	// RetryNewKey says that this request will not succeed; another one, under a
	// key of its own, may.
	RetryNewKey Retry = "new-key"
	// RetryNever says that a retry does not help.
	RetryNever Retry = "never"
)

func (r Retry) known() bool { return r == RetrySameKey || r == RetryNewKey || r == RetryNever }

// Problem is an error as the API tells it (RFC 9457). As an error of [Client.Do]
// it is final: its Retry is RetryNewKey or RetryNever.
type Problem struct {
	Type   string `json:"type"` // switch on this, such as /problems/payment-declined
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Retry  Retry  `json:"retry"`

	Code        string       `json:"code"`         // of a decline or a refusal
	DeclineCode string       `json:"decline_code"` // of a decline
	OrderID     string       `json:"order_id"`     // of the order that the key made
	Remaining   int64        `json:"remaining"`    // of an order, in the smallest unit; of refund-exceeds-remaining
	RequestID   string       `json:"request_id"`   // to quote when asking for help
	Errors      []FieldError `json:"errors"`       // of a request that is not valid
}

// FieldError is one thing that is wrong with a request.
type FieldError struct {
	Pointer string `json:"pointer"` // to the member (RFC 6901), or /name of a query parameter
	Code    string `json:"code"`    // the violated rule, such as required or too_long
	Detail  string `json:"detail"`  // for people
}

// Error returns what happened, for people.
func (p *Problem) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s: %s", p.Status, strings.TrimPrefix(p.Type, "/problems/"), p.Detail)
	for _, e := range p.Errors {
		fmt.Fprintf(&b, "; %s %s", e.Pointer, e.Detail)
	}
	return b.String()
}

// OutcomeUnknownError says that nobody knows yet what became of a request: it
// may have had its effect, have it later, or never. Keep the key. To find out,
// send the same request under it again. A request under another key would be a
// second one.
type OutcomeUnknownError struct {
	Key      Key
	Attempts int // of this call

	cause error
}

// Error says so, without the key.
func (e *OutcomeUnknownError) Error() string {
	return fmt.Sprintf("client: outcome unknown after %d sends, keep the key and send the same again: %v", e.Attempts, e.cause)
}

// Unwrap returns the context's error where that ended the call. A [*Problem] is
// never in the chain: it would read as final.
func (e *OutcomeUnknownError) Unwrap() error {
	var problem *Problem
	if errors.As(e.cause, &problem) {
		return nil
	}
	return e.cause
}
