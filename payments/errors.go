package payments

import (
	"errors"
	"fmt"
	"time"
)

// Causes that an [Error] may wrap.
var (
	ErrInvalidCall = errors.New("invalid call") // nothing was sent
	ErrNoResponse  = errors.New("no response")
	ErrUnreadable  = errors.New("unreadable response") // not in Stripe's format
	ErrMismatch    = errors.New("response about another payment")
)

// Errors of [Client.Event].
var (
	ErrWebhooksOff  = errors.New("no webhook secret")
	ErrSignature    = errors.New("not an event signed by the provider") // or signed too long ago
	ErrInvalidEvent = errors.New("not an event of the provider")        // signed, but not an event
	ErrThinEvent    = errors.New("an event without its object")
)

// Outcome states what is known about the effect of a failed call.
type Outcome int

const (
	// Unknown means that the call may have had its effect. It is the zero value, so an
	// unclassified error proves nothing.
	Unknown Outcome = iota
	// NotExecuted means that this call had no effect, but an earlier one may have.
	NotExecuted
	// Refused is final: a value of our client is invalid. After a Confirm, the intent must be
	// cancelled before the refusal is stored (R23).
	Refused
	// Declined is final: the card was declined, and the intent lost its payment method.
	Declined
)

func (o Outcome) String() string {
	return [...]string{Unknown: "unknown", NotExecuted: "not executed", Refused: "refused", Declined: "declined"}[o]
}

// Error is the error of every call to Stripe. It contains no secret.
type Error struct {
	Outcome    Outcome
	HTTPStatus int // 0: no response

	// From Stripe's error; empty if absent.
	Type, Code, DeclineCode, Param string
	RequestID                      string

	Message         string  // for the customer, if Declined or Refused
	OperatorMessage string  // for the operator; with NeedsOperator
	Intent          *Intent // in Stripe's error, or nil

	// ReplayedError: Stripe replays this error (R12). A 500 may have had its effect.
	ReplayedError bool
	// UnexpectedState: the intent does not allow this call, possibly after an earlier one.
	UnexpectedState bool
	// IntentMissing is set in test mode only, where data can be deleted. A live intent may
	// belong to another account.
	IntentMissing bool
	NotOffered    bool // by the account or the server, see [Client.Search]
	// NeedsOperator: a bug, a wrong configuration or an incomplete account; never final.
	NeedsOperator bool

	RetryAfter time.Duration // 0 for final outcomes

	cause      error         // safe to print
	minBackoff time.Duration // requested by a Retry-After header
}

// Error omits the text for the customer.
func (e *Error) Error() string {
	text := "payments: " + e.Outcome.String()
	if e.HTTPStatus != 0 {
		text += fmt.Sprintf(", status %d", e.HTTPStatus)
	}
	for _, part := range []struct{ name, value string }{
		{"type", e.Type},
		{"code", e.Code},
		{"decline code", e.DeclineCode},
		{"param", e.Param},
		{"request", e.RequestID},
	} {
		if part.value != "" {
			text += ", " + part.name + " " + part.value
		}
	}
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	if e.OperatorMessage != "" {
		text += ": " + e.OperatorMessage
	}
	return text
}

// Unwrap never returns a *stripe.Error, whose text contains the client secret (R13).
func (e *Error) Unwrap() error { return e.cause }

func (e *Error) retryable() bool {
	final := e.Outcome == Declined || e.Outcome == Refused
	return !final && !e.NeedsOperator && !e.ReplayedError && !e.UnexpectedState && !e.NotOffered
}

// invalidCall is not Refused, because a bug of ours must not become a final response.
func invalidCall(format string, args ...any) *Error {
	return &Error{
		Outcome:       NotExecuted,
		NeedsOperator: true,
		RetryAfter:    operatorRetryAfter,
		cause:         fmt.Errorf("%w: %s", ErrInvalidCall, fmt.Sprintf(format, args...)),
	}
}
