package payments

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"time"

	"github.com/stripe/stripe-go/v79"
)

// Status is the state of a PaymentIntent. Treat unknown values as not final.
type Status string

// States of a PaymentIntent. Succeeded and canceled are final.
const (
	StatusSucceeded             Status = "succeeded"
	StatusProcessing            Status = "processing"      // possibly for days
	StatusRequiresAction        Status = "requires_action" // the customer must approve the payment
	StatusRequiresConfirmation  Status = "requires_confirmation"
	StatusRequiresPaymentMethod Status = "requires_payment_method" // the card was declined, if LastError is set
	StatusCanceled              Status = "canceled"
	StatusRequiresCapture       Status = "requires_capture" // never requested here
)

// Intent is a PaymentIntent.
type Intent struct {
	ID             string
	Status         Status
	Amount         int64 // in the currency's smallest unit
	AmountReceived int64
	Currency       string
	Metadata       map[string]string
	Created        time.Time
	LastError      *Decline // of the latest confirm, or nil
	Action         *Action  // of StatusRequiresAction
	Replayed       bool     // Stripe repeated an earlier response of this key, so the status may be stale
}

// Action is what the customer must do. Until the intent is cancelled, its client secret also
// permits a payment with another card.
type Action struct {
	Type         string // such as use_stripe_sdk
	clientSecret string
}

// ClientSecret returns the secret with which the customer approves the payment. It must never be
// stored or logged.
func (a Action) ClientSecret() string { return a.clientSecret }

// Format hides the client secret.
func (a Action) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, a.Type) }

// Decline is why a card was not charged, with Stripe's text for the customer.
type Decline struct{ Code, DeclineCode, Message string }

// CreateParams must be the same in each call with a key, because Stripe rejects others.
type CreateParams struct {
	Amount        int64
	Currency      string
	PaymentMethod string
	Description   string
	Metadata      map[string]string
}

func (p CreateParams) match(i Intent) bool {
	return i.Amount == p.Amount && i.Currency == p.Currency && maps.Equal(i.Metadata, p.Metadata)
}

const intentsPath = "/v1/payment_intents"

// Create creates an unconfirmed PaymentIntent: no money moves.
func (c *Client) Create(ctx context.Context, key string, p CreateParams) (Intent, error) {
	call := call{name: "create", key: key, method: http.MethodPost, path: intentsPath, params: &stripe.PaymentIntentParams{
		Amount:        stripe.Int64(p.Amount),
		Currency:      stripe.String(p.Currency),
		PaymentMethod: stripe.String(p.PaymentMethod),
		Description:   optional(p.Description),
		Metadata:      p.Metadata,
		// Otherwise a confirm requires a return_url.
		AutomaticPaymentMethods: &stripe.PaymentIntentAutomaticPaymentMethodsParams{
			Enabled:        stripe.Bool(true),
			AllowRedirects: stripe.String("never"),
		},
	}}
	return do(ctx, c, call, decodeIntent, p.match)
}

// Confirm charges the intent, at most once in its life.
func (c *Client) Confirm(ctx context.Context, key, intentID string, offSession bool) (Intent, error) {
	confirm := &stripe.PaymentIntentConfirmParams{OffSession: stripe.Bool(true)}
	if !offSession {
		confirm = &stripe.PaymentIntentConfirmParams{UseStripeSDK: stripe.Bool(true)} // without a return_url
	}
	return c.ofIntent(ctx, call{name: "confirm", key: key, method: http.MethodPost, params: confirm}, intentID, "/confirm")
}

// Get reads the intent.
func (c *Client) Get(ctx context.Context, intentID string) (Intent, error) {
	return c.ofIntent(ctx, call{name: "get", method: http.MethodGet}, intentID, "")
}

// Cancel ensures that the intent can never be charged (R23, cancel first). After a charge or a
// cancel, the error is [UnexpectedState].
func (c *Client) Cancel(ctx context.Context, key, intentID string) (Intent, error) {
	return c.ofIntent(ctx, call{name: "cancel", key: key, method: http.MethodPost}, intentID, "/cancel")
}

func (c *Client) ofIntent(ctx context.Context, call call, intentID, action string) (Intent, error) {
	call.intentID, call.path = intentID, stripe.FormatURLPath(intentsPath+"/%s"+action, intentID)
	return do(ctx, c, call, decodeIntent, func(i Intent) bool { return i.ID == intentID })
}

// decodeIntent returns an error if what an outcome depends on is missing or has another type.
func decodeIntent(text []byte, header http.Header) (Intent, error) {
	var pi struct {
		Object   string            `json:"object"`
		ID       string            `json:"id"`
		Status   Status            `json:"status"`
		Amount   int64             `json:"amount"`
		Currency string            `json:"currency"`
		Metadata map[string]string `json:"metadata"`

		AmountReceived lenient[int64]  `json:"amount_received"`
		Created        lenient[int64]  `json:"created"`
		ClientSecret   lenient[string] `json:"client_secret"`
		// These exist whatever their type is, unless they are null.
		NextAction *lenient[struct {
			Type lenient[string] `json:"type"`
		}] `json:"next_action"`
		LastPaymentError *lenient[failure] `json:"last_payment_error"`
	}
	err := json.Unmarshal(text, &pi)
	if err != nil || pi.Object != "payment_intent" || pi.ID == "" || pi.Status == "" || pi.Amount <= 0 || pi.Currency == "" || pi.Metadata == nil {
		return Intent{}, unreadableObject(pi.ID)
	}
	intent := Intent{
		ID:             pi.ID,
		Status:         pi.Status,
		Amount:         pi.Amount,
		AmountReceived: pi.AmountReceived.value,
		Currency:       pi.Currency,
		Metadata:       pi.Metadata,
		Created:        time.Unix(pi.Created.value, 0).UTC(),
		Replayed:       header.Get("Idempotent-Replayed") == "true",
	}
	if intent.Status == StatusRequiresAction && pi.NextAction != nil && pi.ClientSecret.value != "" {
		intent.Action = &Action{Type: printable(pi.NextAction.value.Type.value), clientSecret: pi.ClientSecret.value}
	}
	if last := pi.LastPaymentError; last != nil {
		intent.LastError = &Decline{
			Code:        printable(string(last.value.Code.value)),
			DeclineCode: printable(last.value.DeclineCode.value),
			Message:     printable(last.value.Message.value),
		}
	}
	return intent, nil
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
