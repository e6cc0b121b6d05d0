package payments

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v79"
)

// Status is the state of a PaymentIntent. Treat unknown values as not final.
type Status string

// States of a PaymentIntent.
const (
	StatusSucceeded             Status = "succeeded"       // final
	StatusProcessing            Status = "processing"      // possibly for days
	StatusRequiresAction        Status = "requires_action" // the customer must approve the payment
	StatusRequiresConfirmation  Status = "requires_confirmation"
	StatusRequiresPaymentMethod Status = "requires_payment_method" // of a declined card, if LastError is set
	StatusCanceled              Status = "canceled"                // final
	StatusRequiresCapture       Status = "requires_capture"        // never requested here
)

// Intent is a PaymentIntent.
type Intent struct {
	ID             string
	Status         Status
	Amount         int64 // in the currency's smallest unit
	AmountReceived int64
	Currency       string // lower case
	Metadata       map[string]string
	Created        time.Time // in whole seconds
	LastError      *Decline  // of the latest attempt, or nil
	Action         *Action   // of StatusRequiresAction
}

// Action is what the customer must do. Until the intent is cancelled, the holder of the client
// secret can also pay with another card.
type Action struct {
	Type         string // of Stripe's next_action, such as use_stripe_sdk
	clientSecret string
}

// ClientSecret is for Stripe.js. Never store or log it.
func (a Action) ClientSecret() string { return a.clientSecret }

// Format hides the client secret.
func (a Action) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, a.Type) }

// Decline is the reason why a card was not charged, with Stripe's text for the customer.
type Decline struct{ Code, DeclineCode, Message string }

// Matches reports whether the intent is that of the order.
func (i Intent) Matches(amount int64, currency, orderID string) bool {
	return i.Amount == amount && i.Currency == currency && i.Metadata["order_id"] == orderID
}

func (i Intent) mayHaveCharged() bool {
	return i.Status == StatusSucceeded || i.Status == StatusProcessing || i.Status == StatusRequiresCapture
}

// CreateParams are the parameters of a PaymentIntent, always the same for a key (R4, R5).
type CreateParams struct {
	Amount        int64
	Currency      string
	PaymentMethod string
	Description   string            // seen by the customer
	Metadata      map[string]string // without empty values, which Stripe drops
}

func (p CreateParams) match(i Intent) bool {
	return i.Amount == p.Amount && i.Currency == p.Currency && maps.Equal(i.Metadata, p.Metadata)
}

// Create creates a PaymentIntent without confirming it: no money moves.
func (c *Client) Create(ctx context.Context, key string, p CreateParams) (Intent, error) {
	create := call{name: "create", key: key, invalid: checkKey(key)}
	return do(ctx, c, create, newIntent, p.match, func(params stripe.Params) (*stripe.PaymentIntent, error) {
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

// Confirm charges the intent, at most once in its life. A card that requires approval is
// Declined off-session.
func (c *Client) Confirm(ctx context.Context, key, intentID string, offSession bool) (Intent, error) {
	confirm := call{name: "confirm", key: key, intentID: intentID, invalid: cmp.Or(checkKey(key), checkID(intentID, "pi_"))}
	return do(ctx, c, confirm, newIntent, hasID[Intent](intentID), func(params stripe.Params) (*stripe.PaymentIntent, error) {
		confirm := &stripe.PaymentIntentConfirmParams{Params: params}
		if offSession {
			confirm.OffSession = stripe.Bool(true)
		} else {
			confirm.UseStripeSDK = stripe.Bool(true) // Stripe.js handles the action, without a return_url
		}
		return c.intents.Confirm(intentID, confirm)
	})
}

// Get reads the intent's state.
func (c *Client) Get(ctx context.Context, intentID string) (Intent, error) {
	get := call{name: "get", intentID: intentID, invalid: checkID(intentID, "pi_")}
	return do(ctx, c, get, newIntent, hasID[Intent](intentID), func(params stripe.Params) (*stripe.PaymentIntent, error) {
		return c.intents.Get(intentID, &stripe.PaymentIntentParams{Params: params})
	})
}

// Cancel ensures that the intent can never be charged (R23). If it was charged or cancelled,
// the error has UnexpectedState.
func (c *Client) Cancel(ctx context.Context, key, intentID string) (Intent, error) {
	cancel := call{name: "cancel", key: key, intentID: intentID, invalid: cmp.Or(checkKey(key), checkID(intentID, "pi_"))}
	return do(ctx, c, cancel, newIntent, hasID[Intent](intentID), func(params stripe.Params) (*stripe.PaymentIntent, error) {
		return c.intents.Cancel(intentID, &stripe.PaymentIntentCancelParams{Params: params})
	})
}

// newIntent fails if a member is missing, because stripe-go accepts an empty object.
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

// checkKey rejects keys that stripe-go would change, or that exceed Stripe's limit.
func checkKey(key string) error {
	invisible := func(r rune) bool { return r <= ' ' || r > '~' }
	if key == "" || len(key) > 255 || strings.ContainsFunc(key, invisible) {
		return invalidCall("an idempotency key must have 1 to 255 visible ASCII characters")
	}
	return nil
}

// checkID rejects other ids, and the empty one, whose path is that of the list.
func checkID(id string, prefixes ...string) error {
	if slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(id, prefix) }) {
		return nil
	}
	return invalidCall("not an id with the prefix %s", strings.Join(prefixes, " or "))
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
