package main

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

// provider charges orders. Its keys are derived from the order's id, so a step can repeat
// each call.
type provider struct{ intents paymentintent.Client }

func newStripe() provider {
	return provider{paymentintent.Client{
		Key: os.Getenv("STRIPE_SECRET_KEY"),
		B: stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
			URL:               stripe.String(cmp.Or(os.Getenv("STRIPE_API_BASE"), stripe.APIURL)),
			HTTPClient:        &http.Client{Timeout: stripeTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 1000}},
			MaxNetworkRetries: stripe.Int64(0), // the step is retried
			EnableTelemetry:   stripe.Bool(false),
			LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull},
		}),
	}}
}

// create creates the order's PaymentIntent unconfirmed, so no money moves.
func (p provider) create(ctx context.Context, o order) (intentID string, err error) {
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

// confirm charges the intent. After a decline it cancels the intent and returns the decline's
// code, so a customer who was told "declined" is never charged.
func (p provider) confirm(ctx context.Context, o order, intentID string) (failureCode string, err error) {
	params := &stripe.PaymentIntentConfirmParams{OffSession: stripe.Bool(true)}
	params.Context = ctx
	params.SetIdempotencyKey(o.ID.String() + "/confirm")
	intent, err := p.intents.Confirm(intentID, params)
	if declined := (*stripe.Error)(nil); errors.As(err, &declined) && declined.Type == stripe.ErrorTypeCard {
		cancel := &stripe.PaymentIntentCancelParams{}
		cancel.Context = ctx
		cancel.SetIdempotencyKey(o.ID.String() + "/cancel")
		_, err := p.intents.Cancel(intentID, cancel)
		return string(declined.Code), err
	}
	if err != nil {
		return "", err
	}
	if intent.Status != stripe.PaymentIntentStatusSucceeded {
		return "", fmt.Errorf("the payment is %s", intent.Status)
	}
	return "", nil
}
