package payments

import (
	"context"
	"fmt"
	"io"
	"maps"
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

// Create creates an unconfirmed PaymentIntent: no money moves.
func (c *Client) Create(ctx context.Context, key string, p CreateParams) (Intent, error) {
	return do(ctx, c, call{name: "create", key: key}, newIntent, p.match, func(params stripe.Params) (*stripe.PaymentIntent, error) {
		return c.intents.New(&stripe.PaymentIntentParams{
			Params:        params,
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
		})
	})
}

// Confirm charges the intent, at most once in its life.
func (c *Client) Confirm(ctx context.Context, key, intentID string, offSession bool) (Intent, error) {
	call := call{name: "confirm", key: key, intentID: intentID}
	return do(ctx, c, call, newIntent, hasID[Intent](intentID), func(params stripe.Params) (*stripe.PaymentIntent, error) {
		confirm := &stripe.PaymentIntentConfirmParams{Params: params}
		if offSession {
			confirm.OffSession = stripe.Bool(true)
		} else {
			confirm.UseStripeSDK = stripe.Bool(true) // without a return_url
		}
		return c.intents.Confirm(intentID, confirm)
	})
}

// Get reads the intent.
func (c *Client) Get(ctx context.Context, intentID string) (Intent, error) {
	call := call{name: "get", intentID: intentID}
	return do(ctx, c, call, newIntent, hasID[Intent](intentID), func(params stripe.Params) (*stripe.PaymentIntent, error) {
		return c.intents.Get(intentID, &stripe.PaymentIntentParams{Params: params})
	})
}

// Cancel ensures that the intent can never be charged (R23, cancel first). After a charge or a
// cancel, the error has UnexpectedState.
func (c *Client) Cancel(ctx context.Context, key, intentID string) (Intent, error) {
	call := call{name: "cancel", key: key, intentID: intentID}
	return do(ctx, c, call, newIntent, hasID[Intent](intentID), func(params stripe.Params) (*stripe.PaymentIntent, error) {
		return c.intents.Cancel(intentID, &stripe.PaymentIntentCancelParams{Params: params})
	})
}

// newIntent rejects an incomplete object, which stripe-go accepts.
func newIntent(pi *stripe.PaymentIntent) (Intent, error) {
	if pi == nil || pi.Object != "payment_intent" || pi.ID == "" || pi.Status == "" || pi.Amount <= 0 || pi.Currency == "" {
		return Intent{}, fmt.Errorf("%w: not a complete PaymentIntent", ErrUnreadable)
	}
	intent := Intent{
		ID:             pi.ID,
		Status:         Status(pi.Status),
		Amount:         pi.Amount,
		AmountReceived: pi.AmountReceived,
		Currency:       string(pi.Currency),
		Metadata:       pi.Metadata,
		Created:        time.Unix(pi.Created, 0).UTC(),
	}
	if pi.LastResponse != nil { // not in a list or an error
		intent.Replayed = pi.LastResponse.Header.Get("Idempotent-Replayed") == "true"
	}
	if intent.Status == StatusRequiresAction && pi.NextAction != nil && pi.ClientSecret != "" {
		intent.Action = &Action{Type: printable(string(pi.NextAction.Type)), clientSecret: pi.ClientSecret}
	}
	if last := pi.LastPaymentError; last != nil {
		intent.LastError = &Decline{
			Code:        printable(string(last.Code)),
			DeclineCode: printable(string(last.DeclineCode)),
			Message:     printable(last.Msg),
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
