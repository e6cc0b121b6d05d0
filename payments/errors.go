package payments

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// What an [Error] may wrap, next to context.Canceled and
// context.DeadlineExceeded.
var (
	// ErrInvalidCall says that an argument is wrong; nothing was sent.
	ErrInvalidCall = errors.New("invalid call")
	// ErrNoResponse says that no answer came back.
	ErrNoResponse = errors.New("no response")
	// ErrUnreadable says that what came back is not an answer of Stripe's.
	ErrUnreadable = errors.New("unreadable response")
	// ErrMismatch says that the answer is about another payment than the one
	// asked for.
	ErrMismatch = errors.New("response about another payment")
)

// What [Client.Event] fails with.
var (
	// ErrWebhooksOff says that there is no secret to check a delivery with.
	ErrWebhooksOff = errors.New("no webhook secret")
	// ErrSignature says that a delivery is not an event that Stripe signed for us
	// within the last minutes.
	ErrSignature = errors.New("not an event signed by the provider")
)

// Outcome is what is known about the effect of a call that failed.
type Outcome int

const (
	// Unknown means the call may have had its effect. It is the zero value: an
	// error nobody has judged proves nothing.
	Unknown Outcome = iota
	// NotExecuted means none of the call's sends had an effect; its key is unused.
	// It says nothing about earlier calls under the same key.
	NotExecuted
	// Refused is final: the provider does not take this request, for a reason
	// that is not the card (an unknown payment method, too small an amount).
	// After a Confirm the intent still stands and must be cancelled before the
	// refusal is told to anyone (R23).
	Refused
	// Declined is final: the card was declined and the intent lost its payment
	// method, so that no later confirm can charge it.
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

// Error is every error that a call to Stripe returns. It can be logged and
// printed with any verb: no field holds a secret.
type Error struct {
	Outcome    Outcome
	HTTPStatus int // 0: no answer

	// What Stripe says about itself, empty where it did not.
	Type, Code, DeclineCode, Param string
	RequestID                      string

	// Message is Stripe's text where it may be shown to the paying client, that
	// is for Declined, and for Refused without NeedsOperator. Empty otherwise.
	Message string

	// Intent is the PaymentIntent inside the error, nil when there was none.
	Intent *Intent

	// ReplayedError: Stripe keeps a 500 under this key and will repeat it, so the key
	// can never succeed. The effect may have been made all the same (R12).
	ReplayedError bool
	// UnexpectedState: the intent is not in a state for this call, perhaps
	// because an earlier one took effect. Not an answer: Get it, then decide.
	UnexpectedState bool
	// NeedsOperator: our bug or our configuration. Somebody should be told.
	NeedsOperator bool

	// RetryAfter is how long to leave the provider alone, 0 for final outcomes.
	RetryAfter time.Duration

	cause error         // printable by construction
	pause time.Duration // what a Retry-After header asks for before a resend
}

// Error names the outcome and what identifies the failure, never Stripe's text.
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

// Unwrap returns a sentinel of this package, joined with a context or network
// error where there was one. A *stripe.Error is never in the chain: its text
// holds the client secret (R13).
func (e *Error) Unwrap() error { return e.cause }

// resendable says whether the same request under the same key may still get
// another answer now.
func (e *Error) resendable() bool {
	final := e.Outcome == Declined || e.Outcome == Refused
	return !final && !e.NeedsOperator && !e.ReplayedError && !e.UnexpectedState
}

// invalidCall refuses an argument before anything is sent. NotExecuted rather than
// Refused: a bug of ours must not become an order's final answer.
func invalidCall(format string, args ...any) *Error {
	return &Error{
		Outcome:       NotExecuted,
		NeedsOperator: true,
		RetryAfter:    misuseRetryAfter,
		cause:         fmt.Errorf("%w: %s", ErrInvalidCall, fmt.Sprintf(format, args...)),
	}
}
