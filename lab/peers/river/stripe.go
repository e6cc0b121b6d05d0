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

// provider charges orders. Its keys are derived from the order's id, so an attempt can
// repeat each call.
type provider struct{ intents paymentintent.Client }

func newStripe() provider {
	return provider{paymentintent.Client{
		Key: os.Getenv("STRIPE_SECRET_KEY"),
		B: stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
			URL:               stripe.String(cmp.Or(os.Getenv("STRIPE_API_BASE"), stripe.APIURL)),
			HTTPClient:        &http.Client{Timeout: stripeTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 1000}},
			MaxNetworkRetries: stripe.Int64(0), // the whole attempt is retried
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

// confirm charges the intent. After a decline it cancels the intent, so a customer who was
// told "declined" is never charged.
func (p provider) confirm(ctx context.Context, o order, intentID string) (result, error) {
	r := result{Hash: o.Hash, Status: statusPaid, IntentID: intentID}
	params := &stripe.PaymentIntentConfirmParams{OffSession: stripe.Bool(true)}
	params.Context = ctx
	params.SetIdempotencyKey(o.ID.String() + "/confirm")
	intent, err := p.intents.Confirm(intentID, params)
	if declined := (*stripe.Error)(nil); errors.As(err, &declined) && declined.Type == stripe.ErrorTypeCard {
		r.Status, r.FailureCode = statusFailed, string(declined.Code)
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
