package client

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

var (
	// ErrInvalidKey says that a key is not 16 to 255 visible ASCII characters.
	// Nothing was sent.
	ErrInvalidKey = errors.New("client: invalid idempotency key")

	// ErrUnreadable says that what came back is no answer of the API's.
	ErrUnreadable = errors.New("client: unreadable response")
)

// Retry is a problem's retry member: what a client may do next. It has no other
// values.
type Retry string

const (
	// RetrySameKey means: send the same request with the same key again.
	// [Client.Do] does so.
	RetrySameKey Retry = "same-key"
	// RetryCorrected means: fix the reported error, and send the request with the
	// same key. This send did not use the key.
	RetryCorrected Retry = "corrected"
	// RetryNewKey means that the key has its final response. Another attempt is
	// another payment, with a key of its own.
	RetryNewKey Retry = "new-key"
	// RetryNever means that sending the request again cannot help.
	RetryNever Retry = "never"
)

func (r Retry) known() bool {
	return r == RetrySameKey || r == RetryCorrected || r == RetryNewKey || r == RetryNever
}

// Outcome is a problem's outcome member: what its key has done so far, as far as
// the API knows. An unknown value means the same as OutcomeUnknown.
type Outcome string

const (
	// OutcomeNone means that the send was rejected before it claimed the key. It does
	// not exclude that an earlier send did.
	OutcomeNone Outcome = "none"
	// OutcomeUnknown means that the key is claimed, or may be.
	OutcomeUnknown Outcome = "unknown"
	// OutcomeFinal means that the key has its final response.
	OutcomeFinal Outcome = "final"
)

// Problem is an error as the API tells it (RFC 9457). As an error of [Client.Do]
// its Retry is RetryCorrected, RetryNewKey or RetryNever.
type Problem struct {
	Type   string `json:"type"` // switch on this, such as /problems/payment-declined
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Retry  Retry  `json:"retry"`

	// Outcome is for logs and people: what to do next is in Retry.
	Outcome Outcome `json:"outcome"`

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

// ActionRequiredError means that the customer must approve the payment before the order
// can be paid. The key is unfinished: after the customer's action, the same request with
// the same key returns the result.
type ActionRequiredError struct {
	Key    Key
	Action Action
}

// Error has no client secret.
func (e *ActionRequiredError) Error() string {
	return "client: the customer must approve payment " + e.Action.PaymentIntentID + "; then send the same request with the same key"
}

// Action is what the customer must do in the browser, with Stripe.js.
type Action struct {
	Type            string `json:"type"`          // such as use_stripe_sdk
	ClientSecret    string `json:"client_secret"` // for the customer's browser: never stored or logged
	PaymentIntentID string `json:"payment_intent_id"`
}

// Format hides the client secret from every verb.
func (a Action) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, a.Type+" "+a.PaymentIntentID) }

// OutcomeUnknownError says that nobody knows yet what became of a request: it
// may have had its effect, have it later, or never. Keep the key. To find out,
// send the same request under it again. A request under another key would be a
// second one.
type OutcomeUnknownError struct {
	Key      Key
	Attempts int // of this call

	// Problem is the refusal that ended the call, whose Retry is RetryCorrected or
	// RetryNever. It is about the last send only. nil if the context ended the call.
	Problem *Problem

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
