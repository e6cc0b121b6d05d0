package client

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

var (
	// ErrInvalidKey means that nothing was sent, because the key is not a valid [Key].
	ErrInvalidKey = errors.New("client: invalid idempotency key")
	// ErrUnreadable means that a response is not in the API's format.
	ErrUnreadable = errors.New("client: unreadable response")
)

// Retry is what a client may do after a problem.
type Retry string

// The values of [Retry].
const (
	RetrySameKey   Retry = "same-key"  // send the same request again, as [Client.Do] does
	RetryCorrected Retry = "corrected" // fix the request, and send it with the same key; an earlier one without a final response goes first
	RetryNewKey    Retry = "new-key"   // another attempt is another payment
	RetryNever     Retry = "never"     // do not send it again; read the order that the problem names, because it may be paid
)

// Outcome is the key's effect so far. Treat unknown values as OutcomeUnknown.
type Outcome string

// The values of [Outcome].
const (
	OutcomeNone    Outcome = "none"    // this attempt did not use the key; an earlier one may have
	OutcomeUnknown Outcome = "unknown" // the key may have been used
	OutcomeFinal   Outcome = "final"   // the key has its final response
)

// Problem is an error of the API (RFC 9457).
type Problem struct {
	Type            string       `json:"type"` // such as /problems/payment-declined
	Title           string       `json:"title"`
	Status          int          `json:"status"`
	Detail          string       `json:"detail"`
	Retry           Retry        `json:"retry"`
	Outcome         Outcome      `json:"outcome"`
	RequestID       string       `json:"request_id,omitempty"`       // for support
	Code            string       `json:"code,omitempty"`             // set after a decline or a refusal
	DeclineCode     string       `json:"decline_code,omitempty"`     // set after a decline; never for the customer
	ProviderMessage string       `json:"provider_message,omitempty"` // Stripe's own text, for operators only
	OrderID         string       `json:"order_id,omitempty"`         // read this order after RetryNever
	Refund          *Resource    `json:"refund,omitempty"`           // what an expired key created
	Resource        *Resource    `json:"resource,omitempty"`         // the same, if it is neither an order nor a refund
	Errors          []FieldError `json:"errors,omitempty"`           // set if the request is invalid
	Remaining       int64        `json:"remaining,omitempty"`        // set if an amount exceeds what remains
}

// FieldError is an invalid member of a request.
type FieldError struct {
	Pointer string `json:"pointer"` // RFC 6901, or /name of a query parameter
	Code    string `json:"code"`    // such as required or too_long
	Detail  string `json:"detail"`
}

// Error returns the status, the type and the errors or, if there are none, the detail, which would repeat
// the first of them.
func (p *Problem) Error() string {
	details := []string{p.Detail}
	if len(p.Errors) > 0 {
		details = nil
	}
	for _, e := range p.Errors {
		details = append(details, strings.TrimSpace(e.Pointer+" "+e.Detail))
	}
	return fmt.Sprintf("%d %s: %s", p.Status, strings.TrimPrefix(p.Type, "/problems/"), strings.Join(details, "; "))
}

// ActionRequiredError means that the customer must approve the payment. Afterwards, send the
// same request again.
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
	ClientSecret    string `json:"client_secret"` // for the customer's browser; never stored or logged
	PaymentIntentID string `json:"payment_intent_id"`
}

// Format implements [fmt.Formatter], so that no verb prints the client secret.
func (a Action) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, a.Type+" "+a.PaymentIntentID) }

// LogValue implements [slog.LogValuer], so that no handler logs the client secret. Only encoding/json
// includes it.
func (a Action) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(a)) }

// AcceptedError means that the API has stored the request and works on it, because the request preferred
// [RespondAsync]. For its outcome, send the same request again, or read the key.
type AcceptedError struct{ Status KeyStatus }

// Error returns the state of the key.
func (e *AcceptedError) Error() string {
	return "client: the API has stored the request, which is " + e.Status.State + "; send it again with the same key"
}

// OutcomeUnknownError means that the request may take effect, even later. Keep the key
// and send the same request again.
type OutcomeUnknownError struct {
	Key      Key
	Attempts int
	Problem  *Problem // the rejection of the last attempt; nil if the context ended

	cause error
}

// Error omits the key.
func (e *OutcomeUnknownError) Error() string {
	return fmt.Sprintf("client: outcome unknown after %d attempts; keep the key and send the same request again: %v", e.Attempts, e.cause)
}

// Unwrap returns the context's error. It returns nil instead of a [*Problem], because a caller that
// finds one with errors.As would take it as final.
func (e *OutcomeUnknownError) Unwrap() error {
	if e.Problem != nil {
		return nil
	}
	return e.cause
}
