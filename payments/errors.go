package payments

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Causes that an [Error] may wrap.
var (
	// ErrInvalidCall means that an argument is invalid; nothing was sent.
	ErrInvalidCall = errors.New("invalid call")
	// ErrNoResponse means that no response arrived.
	ErrNoResponse = errors.New("no response")
	// ErrUnreadable means that the response is not in Stripe's format.
	ErrUnreadable = errors.New("unreadable response")
	// ErrMismatch means that the response is about another object than the requested
	// one.
	ErrMismatch = errors.New("response about another payment")
)

// Errors of [Client.Event].
var (
	// ErrWebhooksOff means that no webhook secret is configured.
	ErrWebhooksOff = errors.New("no webhook secret")
	// ErrSignature means that the signature is missing, wrong or too old.
	ErrSignature = errors.New("not an event signed by the provider")
	// ErrInvalidEvent means that the signature is valid, but the body is not an event.
	ErrInvalidEvent = errors.New("not an event of the provider")
	// ErrThinEvent means that the signature is valid, but the event does not contain
	// its object.
	ErrThinEvent = errors.New("an event without its object")
)

// Outcome states what is known about the effect of a failed call.
type Outcome int

const (
	// Unknown means that the call may have had its effect. It is the zero value, so an
	// unclassified error proves nothing.
	Unknown Outcome = iota
	// NotExecuted means that no attempt of this call had an effect. The key can be sent
	// again, except after ReplayedError. Earlier calls with the key may have had one.
	NotExecuted
	// Refused is final: the provider rejects a value chosen by our client, such as an
	// unknown payment method. After a Confirm the intent still exists. Cancel it before
	// the refusal is stored (R23).
	Refused
	// Declined is final: the card was declined, and the intent lost its payment method.
	Declined
)

// String returns the outcome as it appears in errors and logs.
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

// Error is the error of every call to Stripe. It contains no secret and is safe to log
// with any verb.
type Error struct {
	Outcome    Outcome
	HTTPStatus int // 0: no response

	// From Stripe's error; empty if absent.
	Type, Code, DeclineCode, Param string
	RequestID                      string

	// Message is Stripe's text for the customer, set for Declined and Refused.
	Message string
	// OperatorMessage is Stripe's text for the operator, set with NeedsOperator, except
	// that of a card error.
	OperatorMessage string

	// Intent is the PaymentIntent in Stripe's error, or nil.
	Intent *Intent

	// ReplayedError: Stripe stored this error under the key and replays it (R12). A 500
	// may have had its effect nevertheless.
	ReplayedError bool
	// UnexpectedState: the intent's state does not allow this call. An earlier call may
	// have taken effect, so call Get.
	UnexpectedState bool
	// IntentMissing: the intent of the call does not exist. It is set in test mode
	// only, where data can be deleted. In live mode, the intent may exist in another
	// account.
	IntentMissing bool
	// NotOffered: the account or the server does not offer this call, see [Client.Search].
	NotOffered bool
	// NeedsOperator: a bug, a wrong configuration or an incomplete account. Never
	// final; operators are alerted.
	NeedsOperator bool

	// RetryAfter is the delay before the next call, 0 for final outcomes.
	RetryAfter time.Duration

	cause      error         // safe to print
	minBackoff time.Duration // requested by a Retry-After header
}

// Error returns the outcome, identifiers and OperatorMessage, never the text for the
// customer.
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
	if e.OperatorMessage != "" {
		b.WriteString(": " + e.OperatorMessage)
	}
	return b.String()
}

// Unwrap returns a cause. It never returns a *stripe.Error, whose text contains the
// client secret (R13).
func (e *Error) Unwrap() error { return e.cause }

func (e *Error) retryable() bool {
	final := e.Outcome == Declined || e.Outcome == Refused
	return !final && !e.NeedsOperator && !e.ReplayedError && !e.UnexpectedState && !e.NotOffered
}

// invalidCall rejects an argument. It is not Refused: a bug of ours must not become an
// order's final response.
func invalidCall(format string, args ...any) *Error {
	return &Error{
		Outcome:       NotExecuted,
		NeedsOperator: true,
		RetryAfter:    operatorRetryAfter,
		cause:         fmt.Errorf("%w: %s", ErrInvalidCall, fmt.Sprintf(format, args...)),
	}
}
