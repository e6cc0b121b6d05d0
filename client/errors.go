package client

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

var (
	// ErrInvalidKey means that a key does not have the form of a [Key]; nothing was sent.
	ErrInvalidKey = errors.New("client: invalid idempotency key")

	// ErrUnreadable means that the response is not in the API's format.
	ErrUnreadable = errors.New("client: unreadable response")
)

// Retry is a problem's retry member: what a client may do next.
type Retry string

const (
	// RetrySameKey means: send the same request with the same key again, as [Client.Do]
	// does.
	RetrySameKey Retry = "same-key"
	// RetryCorrected means: fix the reported error and send the request with the same
	// key. This attempt did not use the key.
	RetryCorrected Retry = "corrected"
	// RetryNewKey means that the key has its final response. Another attempt is another
	// payment.
	RetryNewKey Retry = "new-key"
	// RetryNever means that sending the request again cannot help.
	RetryNever Retry = "never"
)

func (r Retry) known() bool {
	return r == RetrySameKey || r == RetryCorrected || r == RetryNewKey || r == RetryNever
}

// Outcome is a problem's outcome member: the key's effect so far, as far as the API
// knows. Treat an unknown value as OutcomeUnknown.
type Outcome string

const (
	// OutcomeNone means that this attempt did not use the key. An earlier one may have.
	OutcomeNone Outcome = "none"
	// OutcomeUnknown means that the key may have been used.
	OutcomeUnknown Outcome = "unknown"
	// OutcomeFinal means that the key has its final response.
	OutcomeFinal Outcome = "final"
)

// Problem is an error of the API (RFC 9457).
type Problem struct {
	Type   string `json:"type"` // such as /problems/payment-declined
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Retry  Retry  `json:"retry"`

	// Outcome is informational: Retry states what to do next.
	Outcome Outcome `json:"outcome"`

	Code        string       `json:"code"`         // of a decline or refusal
	DeclineCode string       `json:"decline_code"` // of a decline
	OrderID     string       `json:"order_id"`     // of the order that the key created
	Remaining   int64        `json:"remaining"`    // in the smallest unit, of refund-exceeds-remaining
	RequestID   string       `json:"request_id"`   // for support
	Errors      []FieldError `json:"errors"`       // of an invalid request
}

// FieldError is one invalid member of a request.
type FieldError struct {
	Pointer string `json:"pointer"` // to the member (RFC 6901), or /name of a query parameter
	Code    string `json:"code"`    // the violated rule, such as required or too_long
	Detail  string `json:"detail"`  // for people
}

// Error returns type, detail and errors.
func (p *Problem) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s: %s", p.Status, strings.TrimPrefix(p.Type, "/problems/"), p.Detail)
	for _, e := range p.Errors {
		fmt.Fprintf(&b, "; %s %s", e.Pointer, e.Detail)
	}
	return b.String()
}

// ActionRequiredError means that the customer must approve the payment. Afterwards, the
// same request with the same key returns the result.
type ActionRequiredError struct {
	Key    Key
	Action Action
}

// Error omits the client secret.
func (e *ActionRequiredError) Error() string {
	return "client: the customer must approve payment " + e.Action.PaymentIntentID + "; then send the same request with the same key"
}

// Action is what the customer must do in the browser, with Stripe.js.
type Action struct {
	Type            string `json:"type"`          // such as use_stripe_sdk
	ClientSecret    string `json:"client_secret"` // for the customer's browser: never stored or logged
	PaymentIntentID string `json:"payment_intent_id"`
}

// Format hides the client secret from all verbs.
func (a Action) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, a.Type+" "+a.PaymentIntentID) }

// OutcomeUnknownError means that the request may have had its effect, or may have it
// later. Keep the key and send the same request again. A request with another key is
// another payment.
type OutcomeUnknownError struct {
	Key      Key
	Attempts int // of this call

	// Problem is the rejection that ended the call. It is about the last attempt only.
	// nil if the context ended the call.
	Problem *Problem

	cause error
}

// Error omits the key.
func (e *OutcomeUnknownError) Error() string {
	return fmt.Sprintf("client: outcome unknown after %d attempts; keep the key and send the same request again: %v", e.Attempts, e.cause)
}

// Unwrap returns the context's error, if that ended the call. It never returns a
// [*Problem], which would count as final.
func (e *OutcomeUnknownError) Unwrap() error {
	if e.Problem != nil {
		return nil
	}
	return e.cause
}
