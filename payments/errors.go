package payments

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Errors that an [Error] may wrap, besides context.Canceled and
// context.DeadlineExceeded.
var (
	// ErrInvalidCall means that an argument is invalid; nothing was sent.
	ErrInvalidCall = errors.New("invalid call")
	// ErrNoResponse means that no response arrived.
	ErrNoResponse = errors.New("no response")
	// ErrUnreadable means that the response is not one of Stripe's.
	ErrUnreadable = errors.New("unreadable response")
	// ErrMismatch means that the response is about another object than the requested
	// one.
	ErrMismatch = errors.New("response about another payment")
)

// Errors of [Client.Event].
var (
	// ErrWebhooksOff means that there is no secret to verify events with.
	ErrWebhooksOff = errors.New("no webhook secret")
	// ErrSignature means that Stripe did not sign the body for us within the last
	// minutes.
	ErrSignature = errors.New("not an event signed by the provider")
	// ErrInvalidEvent means that the signature is genuine, but the body is not an event,
	// or has a number that a double cannot hold.
	ErrInvalidEvent = errors.New("not an event of the provider")
	// ErrThinEvent means that the signature is genuine, but the event does not contain
	// the object that it is about.
	ErrThinEvent = errors.New("an event without its object")
)

// Outcome is what is known about the effect of a call that failed.
type Outcome int

const (
	// Unknown means that the call may have had its effect. It is the zero value, so
	// an unclassified error proves nothing.
	Unknown Outcome = iota
	// NotExecuted means that no attempt of the call had an effect. Its key can be sent
	// again, except after ReplayedError. It does not cover earlier calls under the key.
	NotExecuted
	// Refused is final: the provider rejects a value that our client chose, such as an
	// unknown payment method or an amount that is too small. After a Confirm the intent
	// still exists, and must be cancelled before a client gets the refusal (R23).
	Refused
	// Declined is final: the card was declined and the intent lost its payment
	// method, so no later confirm can charge it.
	Declined
)

// String returns the outcome as in errors and logs.
func (o Outcome) String() string {
	switch o {
	case NotExecuted:
		return "not executed"
	case Refused:
		return "refused"
	case Declined:
		return "declined"
	default:
		return "unknown"
	}
}

// Error is the type of all errors of calls to Stripe. No field contains a secret, so
// it can be logged and printed with any verb.
type Error struct {
	Outcome    Outcome
	HTTPStatus int // 0: no response

	// From Stripe's error, empty where Stripe sent nothing.
	Type, Code, DeclineCode, Param string
	RequestID                      string

	// Message is Stripe's text for the customer. It is set for Declined and Refused.
	Message string

	// Intent is the PaymentIntent inside Stripe's error, nil if there was none.
	Intent *Intent

	// ReplayedError: Stripe stores an error under this key and replays it, so the key
	// can never succeed (R12). After a 500 the call may have had its effect anyway.
	ReplayedError bool
	// UnexpectedState: the intent's state does not allow this call, perhaps because
	// an earlier one took effect. Get the intent, then decide.
	UnexpectedState bool
	// IntentMissing: the intent of the call does not exist, and so cannot be charged. It
	// is set in test mode only, whose data can be deleted. In live mode, an unknown id
	// belongs to another account or mode, and its intent may be charged there.
	IntentMissing bool
	// NeedsOperator: a bug of ours, our configuration, an account that is not set up, or
	// a change made at the provider. It is never final, and operators are alerted.
	NeedsOperator bool

	// RetryAfter is how long to wait before the next call, 0 for final outcomes.
	RetryAfter time.Duration

	cause      error         // safe to print
	minBackoff time.Duration // requested by a Retry-After header
}

// Error returns the outcome and the identifiers of the failure, never Stripe's text.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("payments: " + e.Outcome.String())
	if e.HTTPStatus != 0 {
		fmt.Fprintf(&b, ", status %d", e.HTTPStatus)
	}
	for _, part := range []struct{ name, value string }{
		{"type", e.Type},
		{"code", e.Code},
		{"decline code", e.DeclineCode},
		{"param", e.Param},
		{"request", e.RequestID},
	} {
		if part.value != "" {
			fmt.Fprintf(&b, ", %s %s", part.name, part.value)
		}
	}
	if e.cause != nil {
		b.WriteString(": " + e.cause.Error())
	}
	return b.String()
}

// Unwrap returns an error of this package, joined with a context or network error if
// there was one. It never returns a *stripe.Error, whose text contains the client
// secret (R13).
func (e *Error) Unwrap() error { return e.cause }

// retryable reports whether the same request under the same key may get another
// response now.
func (e *Error) retryable() bool {
	final := e.Outcome == Declined || e.Outcome == Refused
	return !final && !e.NeedsOperator && !e.ReplayedError && !e.UnexpectedState
}

// invalidCall rejects an argument before anything is sent. The outcome is
// NotExecuted, not Refused, because a bug of ours must not become an order's final
// response.
func invalidCall(format string, args ...any) *Error {
	return &Error{
		Outcome:       NotExecuted,
		NeedsOperator: true,
		RetryAfter:    operatorRetryAfter,
		cause:         fmt.Errorf("%w: %s", ErrInvalidCall, fmt.Sprintf(format, args...)),
	}
}
