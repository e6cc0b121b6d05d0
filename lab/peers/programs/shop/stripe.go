package shop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/paymentintent"
)

const stripeTimeout = 5 * time.Second // of a call

// Provider charges orders. Its keys are derived from the order's id, so an attempt can
// repeat each call.
type Provider struct{ intents paymentintent.Client }

// NewProvider returns a client that repeats a call that often; a durable step is repeated
// itself.
func NewProvider(retries int64) Provider {
	return Provider{paymentintent.Client{
		Key: os.Getenv("STRIPE_SECRET_KEY"),
		B: stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
			URL:               stripe.String(cmp.Or(os.Getenv("STRIPE_API_BASE"), stripe.APIURL)),
			HTTPClient:        &http.Client{Timeout: stripeTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 1000}},
			MaxNetworkRetries: stripe.Int64(retries),
			EnableTelemetry:   stripe.Bool(false),
			LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull},
		}),
	}}
}

// Create creates the order's PaymentIntent unconfirmed, so no money moves.
func (p Provider) Create(ctx context.Context, o Order) (intentID string, err error) {
	params := &stripe.PaymentIntentParams{
		Amount:        stripe.Int64(o.Amount),
		Currency:      stripe.String(o.Currency),
		PaymentMethod: stripe.String(o.PaymentMethod),
		Metadata:      map[string]string{"order_id": o.ID.String(), "idempotency_key": o.Key},
		AutomaticPaymentMethods: &stripe.PaymentIntentAutomaticPaymentMethodsParams{
			Enabled:        stripe.Bool(true),
			AllowRedirects: stripe.String("never"),
		},
	}
	params.Context = ctx
	params.SetIdempotencyKey(o.ID.String() + "/create")
	intent, err := p.intents.New(params)
	if err != nil {
		return "", err
	}
	return intent.ID, nil
}

// Confirm charges the intent. After a decline it cancels the intent, so a customer who was
// told "declined" is never charged.
func (p Provider) Confirm(ctx context.Context, o Order, intentID string) (Result, error) {
	r := Result{Hash: o.Hash, Status: StatusPaid, IntentID: intentID}
	params := &stripe.PaymentIntentConfirmParams{OffSession: stripe.Bool(true)}
	params.Context = ctx
	params.SetIdempotencyKey(o.ID.String() + "/confirm")
	intent, err := p.intents.Confirm(intentID, params)
	if declined := (*stripe.Error)(nil); errors.As(err, &declined) && declined.Type == stripe.ErrorTypeCard {
		r.Status, r.FailureCode = StatusFailed, string(declined.Code)
		cancel := &stripe.PaymentIntentCancelParams{}
		cancel.Context = ctx
		cancel.SetIdempotencyKey(o.ID.String() + "/cancel")
		_, err := p.intents.Cancel(intentID, cancel)
		return r, err
	}
	if err == nil && intent.Status != stripe.PaymentIntentStatusSucceeded {
		err = fmt.Errorf("the payment is %s", intent.Status)
	}
	return r, err
}
