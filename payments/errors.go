package payments

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v79"
)

// Causes that an [Error] may wrap.
var (
	ErrNoResponse = errors.New("no response")
	ErrUnreadable = errors.New("unreadable response") // not in Stripe's format
	ErrMismatch   = errors.New("response about another payment")

	errNotSent = errors.New("not sent, because the API key, the base URL or the provider key is not valid in a request")
)

// unreadable names objects that Stripe returned without what is required of them, or with another type of it.
type unreadable []string

func (ids unreadable) Error() string { return strings.Join(ids, ", ") }

// UnreadableIDs returns the objects that a call could not read although Stripe returned them, or nil after
// another error. The other objects of a list are complete.
func UnreadableIDs(err error) []string {
	ids, _ := errors.AsType[unreadable](err)
	return ids
}

// unreadableObject returns the error of an object, whose id may be unreadable, too.
func unreadableObject(id string) error {
	if id = printable(id); !objectID.MatchString(id) {
		return ErrUnreadable
	}
	return unreadable{id}
}

// Errors of [Client.Event].
var (
	ErrWebhooksOff  = errors.New("no webhook secret")
	ErrSignature    = errors.New("not an event signed by the provider") // or signed too long ago
	ErrInvalidEvent = errors.New("not an event of the provider")
)

// Outcome is what is known about the effect of a failed call.
type Outcome int

// The outcomes.
const (
	Unknown         Outcome = iota // it may have had its effect; the zero value, because an unclassified error proves nothing
	NotExecuted                    // this call had no effect, but an earlier one may have
	UnexpectedState                // the intent does not allow this call, possibly after an earlier one
	KeyUsed                        // an earlier request under this key had other parameters, and may have had an effect
	NotOffered                     // see [Client.Search]
	Refused                        // final: a value of our client is invalid, but cancel a confirmed intent first (R23, cancel first)
	Declined                       // final: the payment was declined, but cancel an intent that still has its payment method first (R23, cancel first)
)

func (o Outcome) String() string {
	return [...]string{"unknown", "not_executed", "unexpected_state", "key_used", "not_offered", "refused", "declined"}[o]
}

// Error is the error of every call to Stripe. It contains no secret.
type Error struct {
	Outcome    Outcome
	HTTPStatus int // 0: no response

	// From Stripe's error.
	Type, Code, DeclineCode, Param string
	RequestID                      string

	Message string  // for the customer, if Declined or Refused; for the operator, if NeedsOperator
	Intent  *Intent // in Stripe's error, or nil

	SavedUnderKey  bool // Stripe repeats this response under the same key; a 500 may have its effect, or still get it
	EarlierUnknown bool // an earlier attempt of this call may still be executed, unless SavedUnderKey
	NeedsOperator  bool // a bug, a wrong configuration or an incomplete account; never final

	RetryAfter time.Duration // if it is not 0, that of RetryDelay

	cause   error // safe to print
	noRetry bool  // Stripe would repeat this error
}

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
	if e.NeedsOperator && e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// Unwrap never returns Stripe's own error, because that contains the client secret (R13, one sender).
func (e *Error) Unwrap() error { return e.cause }

// KeyRejected reports whether Stripe, and no proxy, rejects the secret key or its permission for the call.
func (e *Error) KeyRejected() bool {
	return e.Type != "" && (e.HTTPStatus == http.StatusUnauthorized || e.HTTPStatus == http.StatusForbidden)
}

// retryable reports whether the client sends the call again by itself. If Stripe's error has the header
// Stripe-Should-Retry: false (noRetry), it does not. With true or without the header, the outcome decides, because a
// repetition changes nothing that is final, or that needs an operator or a read.
func (e *Error) retryable() bool {
	return (e.Outcome == Unknown || e.Outcome == NotExecuted) && !e.NeedsOperator && !e.SavedUnderKey && !e.noRetry
}

// RetryDelay returns when a call whose outcome is not final is worth another run.
func (e *Error) RetryDelay() time.Duration {
	switch {
	case e.RetryAfter != 0:
		return e.RetryAfter
	case e.NeedsOperator, e.Outcome == NotOffered:
		return time.Minute
	case e.SavedUnderKey:
		return 30 * time.Second // Stripe resolves its 500s later
	case e.HTTPStatus == 0, e.Code == string(stripe.ErrorCodeLockTimeout):
		return time.Second
	default:
		return 2 * time.Second
	}
}
