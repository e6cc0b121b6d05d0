package payments

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v79"
)

// Status is the state of a PaymentIntent. Treat unknown values as not final.
type Status string

const (
	// StatusSucceeded means charged. Final.
	StatusSucceeded Status = "succeeded"
	// StatusProcessing means that the charge is in progress, possibly for days.
	StatusProcessing Status = "processing"
	// StatusRequiresAction means that the customer must approve the payment. It then
	// succeeds or fails at Stripe, without another call.
	StatusRequiresAction Status = "requires_action"
	// StatusRequiresConfirmation means created, not confirmed.
	StatusRequiresConfirmation Status = "requires_confirmation"
	// StatusRequiresPaymentMethod means no payment method, or a declined one (LastError
	// is set).
	StatusRequiresPaymentMethod Status = "requires_payment_method"
	// StatusCanceled means that it can never be charged. Final.
	StatusCanceled Status = "canceled"
	// StatusRequiresCapture means authorised, not captured. This package never requests
	// it.
	StatusRequiresCapture Status = "requires_capture"
)

// Intent holds the members of a PaymentIntent that are used here.
type Intent struct {
	ID             string
	Status         Status
	Amount         int64 // in the currency's smallest unit
	AmountReceived int64
	Currency       string // lower case
	Metadata       map[string]string
	Created        time.Time // by Stripe's clock, in whole seconds
	LastError      *Decline  // why the latest attempt failed, nil if none did
	Action         *Action   // what the customer must do, nil unless the status is StatusRequiresAction
}

// Action is what the customer must do before the payment can succeed. The holder of the
// client secret can approve the payment, or retry it with another card, until the
// intent is cancelled.
type Action struct {
	Type         string // of Stripe's next_action, such as use_stripe_sdk
	clientSecret string
}

// ClientSecret returns the secret for Stripe.js. Never store or log it.
func (a Action) ClientSecret() string { return a.clientSecret }

// Format prints the type, never the client secret.
func (a Action) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, a.Type) }

// Decline is the reason why a card was not charged. Message is Stripe's text for the
// customer.
type Decline struct{ Code, DeclineCode, Message string }

// Matches reports whether the intent belongs to the order. Check it before accepting a
// success.
func (i Intent) Matches(amount int64, currency, orderID string) bool {
	return i.Amount == amount && i.Currency == currency && i.Metadata["order_id"] == orderID
}

func (i Intent) mayHaveCharged() bool {
	return i.Status == StatusSucceeded || i.Status == StatusProcessing || i.Status == StatusRequiresCapture
}

// CreateParams are the parameters of a PaymentIntent. Stripe rejects other parameters
// with the same key (R4, R5).
type CreateParams struct {
	Amount        int64  // in the currency's smallest unit
	Currency      string // lower case
	PaymentMethod string
	Description   string // seen by the customer
	// Stripe drops empty metadata values, which then causes ErrMismatch.
	Metadata map[string]string
}

func (p CreateParams) match(i Intent) bool {
	return i.Amount == p.Amount && i.Currency == p.Currency && maps.Equal(i.Metadata, p.Metadata)
}

// Create creates a PaymentIntent without confirming it: no money moves. A response
// about another intent is Unknown with [ErrMismatch].
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
			// Otherwise the dashboard's payment methods are enabled (since API version
			// 2023-08-16), and a confirm requires a return_url.
			AutomaticPaymentMethods: &stripe.PaymentIntentAutomaticPaymentMethodsParams{
				Enabled:        stripe.Bool(true),
				AllowRedirects: stripe.String("never"),
			},
		})
	})
}

// Confirm charges the intent, at most once in its life. If the card requires approval,
// an off-session payment is Declined; otherwise the status is StatusRequiresAction.
// After Unknown, call Get.
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

// Get reads the intent's state. After Unknown and NotExecuted nothing is known about
// the intent.
func (c *Client) Get(ctx context.Context, intentID string) (Intent, error) {
	get := call{name: "get", intentID: intentID, invalid: checkID(intentID, "pi_")}
	return do(ctx, c, get, newIntent, hasID[Intent](intentID), func(params stripe.Params) (*stripe.PaymentIntent, error) {
		return c.intents.Get(intentID, &stripe.PaymentIntentParams{Params: params})
	})
}

// Cancel ensures that the intent can never be charged (R23). It fails with
// UnexpectedState if the intent is cancelled or charged.
func (c *Client) Cancel(ctx context.Context, key, intentID string) (Intent, error) {
	cancel := call{name: "cancel", key: key, intentID: intentID, invalid: cmp.Or(checkKey(key), checkID(intentID, "pi_"))}
	return do(ctx, c, cancel, newIntent, hasID[Intent](intentID), func(params stripe.Params) (*stripe.PaymentIntent, error) {
		return c.intents.Cancel(intentID, &stripe.PaymentIntentCancelParams{Params: params})
	})
}

// newIntent converts a PaymentIntent. It fails if a required member is missing, because
// stripe-go accepts an empty object or a bare id.
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

// checkKey rejects keys that stripe-go would replace, trim or omit, or that exceed
// Stripe's limit of 255 bytes.
func checkKey(key string) error {
	if key == "" || len(key) > 255 {
		return invalidCall("idempotency key of %d bytes", len(key))
	}
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return invalidCall("idempotency key with a character that is not visible ASCII")
	}
	return nil
}

// checkID keeps other ids and the empty id, which selects the list, out of the path.
func checkID(id string, prefixes ...string) error {
	for _, prefix := range prefixes {
		if strings.HasPrefix(id, prefix) {
			return nil
		}
	}
	return invalidCall("not an id with the prefix %s", strings.Join(prefixes, " or "))
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
