package payments

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v79"
)

// Status is the state of a PaymentIntent. Stripe may add others. Treat an unknown
// status as not final.
type Status string

const (
	// StatusSucceeded means charged. Final.
	StatusSucceeded Status = "succeeded"
	// StatusProcessing means that the charge is in progress, perhaps for days.
	StatusProcessing Status = "processing"
	// StatusRequiresAction means that the customer must approve the payment first. The
	// payment then succeeds or fails at Stripe, without another call of ours.
	StatusRequiresAction Status = "requires_action"
	// StatusRequiresConfirmation means created, not confirmed.
	StatusRequiresConfirmation Status = "requires_confirmation"
	// StatusRequiresPaymentMethod means that the intent has no payment method: none
	// was given, or the given one was declined (then LastError is set).
	StatusRequiresPaymentMethod Status = "requires_payment_method"
	// StatusCanceled means that it can never be charged. Final.
	StatusCanceled Status = "canceled"
	// StatusRequiresCapture means authorised, not captured. This package never
	// requests that.
	StatusRequiresCapture Status = "requires_capture"
)

// Intent is the part of a PaymentIntent that is used here.
type Intent struct {
	ID             string
	Status         Status
	Amount         int64 // in the currency's smallest unit
	AmountReceived int64
	Currency       string // lower case
	Metadata       map[string]string
	Created        time.Time // by Stripe's clock, in whole seconds
	ChargeID       string    // of the latest charge, which may have failed
	LastError      *Decline  // why the latest attempt failed, nil if none did
	Action         *Action   // what the customer must do, nil unless the status is StatusRequiresAction
}

// Action is what the customer must do in the browser before the payment can succeed.
// The client secret lets its holder approve the payment, and retry it with another card
// after a failure, until the intent is cancelled.
type Action struct {
	Type         string // of Stripe's next_action, such as use_stripe_sdk
	clientSecret string
}

// ClientSecret returns what Stripe.js needs. It must not be stored or logged.
func (a Action) ClientSecret() string { return a.clientSecret }

// Format prints the type with any verb, never the client secret.
func (a Action) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, a.Type) }

// LogValue hides the client secret from slog.
func (a Action) LogValue() slog.Value { return slog.StringValue(a.Type) }

// Decline is the reason why the card was not charged. Stripe wrote Message for the
// customer.
type Decline struct{ Code, DeclineCode, Message string }

// Matches reports whether the intent belongs to the given order: same amount,
// currency and metadata["order_id"]. Check it before a success is believed.
func (i Intent) Matches(amount int64, currency, orderID string) bool {
	return i.Amount == amount && i.Currency == currency && i.Metadata["order_id"] == orderID
}

// mayHaveCharged reports whether money moved or still may.
func (i Intent) mayHaveCharged() bool {
	return i.Status == StatusSucceeded || i.Status == StatusProcessing || i.Status == StatusRequiresCapture
}

// CreateParams are the parameters of a PaymentIntent. Under one key they must never
// change, or Stripe rejects the request (R4, R5).
type CreateParams struct {
	Amount        int64  // in the currency's smallest unit
	Currency      string // lower case
	PaymentMethod string
	Description   string // seen by the customer
	// Metadata is returned unchanged. Stripe drops empty values, so an intent with
	// one is never the intent that was requested.
	Metadata map[string]string
}

func (p CreateParams) match(i Intent) bool {
	return i.Amount == p.Amount && i.Currency == p.Currency && maps.Equal(i.Metadata, p.Metadata)
}

// Create creates a PaymentIntent without confirming it: no money moves. If the
// response is about another intent, the error is [ErrMismatch] with the outcome
// Unknown.
func (c *Client) Create(ctx context.Context, key string, p CreateParams) (Intent, error) {
	if err := checkKey(key); err != nil {
		return Intent{}, err
	}
	return do(ctx, c, call{name: "create", key: key}, newIntent, p.match, func(params stripe.Params) (*stripe.PaymentIntent, error) {
		return c.intents.New(&stripe.PaymentIntentParams{
			Params:        params,
			Amount:        stripe.Int64(p.Amount),
			Currency:      stripe.String(p.Currency),
			PaymentMethod: stripe.String(p.PaymentMethod),
			Description:   optional(p.Description),
			Metadata:      p.Metadata,
			// Without these a confirm requires a return_url: the dashboard's payment
			// methods are enabled by default since API version 2023-08-16.
			AutomaticPaymentMethods: &stripe.PaymentIntentAutomaticPaymentMethodsParams{
				Enabled:        stripe.Bool(true),
				AllowRedirects: stripe.String("never"),
			},
		})
	})
}

// Confirm charges the intent, at most once in its life. A card that requires the
// customer's approval is Declined if the payment is off-session, that is, if the
// customer is not present. Otherwise the status becomes StatusRequiresAction. After
// Unknown, call Get.
func (c *Client) Confirm(ctx context.Context, key, intentID string, offSession bool) (Intent, error) {
	if err := cmp.Or(checkKey(key), checkID(intentID)); err != nil {
		return Intent{}, err
	}
	confirm := call{name: "confirm", key: key, intentID: intentID}
	return do(ctx, c, confirm, newIntent, hasID(intentID), func(params stripe.Params) (*stripe.PaymentIntent, error) {
		confirm := &stripe.PaymentIntentConfirmParams{Params: params}
		if offSession {
			confirm.OffSession = stripe.Bool(true)
		} else {
			confirm.UseStripeSDK = stripe.Bool(true) // Stripe.js handles the action, without a return_url
		}
		return c.intents.Confirm(intentID, confirm)
	})
}

// Get reads the intent's current state. It has no effect, so after Unknown and
// NotExecuted nothing is known about the intent.
func (c *Client) Get(ctx context.Context, intentID string) (Intent, error) {
	if err := checkID(intentID); err != nil {
		return Intent{}, err
	}
	get := call{name: "get", intentID: intentID}
	return do(ctx, c, get, newIntent, hasID(intentID), func(params stripe.Params) (*stripe.PaymentIntent, error) {
		return c.intents.Get(intentID, &stripe.PaymentIntentParams{Params: params})
	})
}

// Cancel makes sure that the intent can never be charged (R23). It fails with
// UnexpectedState if the intent is already cancelled or charged.
func (c *Client) Cancel(ctx context.Context, key, intentID string) (Intent, error) {
	if err := cmp.Or(checkKey(key), checkID(intentID)); err != nil {
		return Intent{}, err
	}
	cancel := call{name: "cancel", key: key, intentID: intentID}
	return do(ctx, c, cancel, newIntent, hasID(intentID), func(params stripe.Params) (*stripe.PaymentIntent, error) {
		return c.intents.Cancel(intentID, &stripe.PaymentIntentCancelParams{Params: params})
	})
}

func hasID(id string) func(Intent) bool {
	return func(i Intent) bool { return i.ID == id }
}

// newIntent converts a PaymentIntent, or fails if a required member is missing.
// stripe-go accepts far less: a bare id, an empty object.
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
	if pi.LatestCharge != nil {
		intent.ChargeID = pi.LatestCharge.ID
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

// checkKey rejects keys that stripe-go would replace by a random key, trim, or not
// send. 255 is Stripe's limit.
func checkKey(key string) error {
	if key == "" || len(key) > 255 {
		return invalidCall("idempotency key of %d bytes", len(key))
	}
	for _, c := range []byte(key) {
		if c <= ' ' || c > '~' {
			return invalidCall("idempotency key with byte %#02x", c)
		}
	}
	return nil
}

// checkID keeps other ids, and "", which is the URL of the list, out of the path.
func checkID(id string) error {
	if !strings.HasPrefix(id, "pi_") {
		return invalidCall("not the id of a PaymentIntent")
	}
	return nil
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
