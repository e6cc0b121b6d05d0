package stripetest_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/charge"
	"github.com/stripe/stripe-go/v79/paymentintent"
	"github.com/stripe/stripe-go/v79/refund"

	"example.com/orders-api/payments/stripetest"
)

// stripeAPI is the part of stripe-go's client.API that is used here. client.API would
// import 130 more packages.
type stripeAPI struct {
	Charges        charge.Client
	PaymentIntents paymentintent.Client
	Refunds        refund.Client
}

// newAPI returns stripe-go's client, without retries.
func newAPI(t *testing.T, baseURL string) *stripeAPI {
	t.Helper()
	const key = "sk_test_standin"
	b := stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
		URL:               stripe.String(baseURL),
		HTTPClient:        &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}},
		MaxNetworkRetries: stripe.Int64(0),
		EnableTelemetry:   stripe.Bool(false),
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull},
	})
	return &stripeAPI{
		Charges:        charge.Client{B: b, Key: key},
		PaymentIntents: paymentintent.Client{B: b, Key: key},
		Refunds:        refund.Client{B: b, Key: key},
	}
}

func params(t *testing.T, key string) stripe.Params {
	p := stripe.Params{Context: t.Context()}
	if key != "" {
		p.IdempotencyKey = stripe.String(key)
	}
	return p
}

func createParams(t *testing.T, key string) *stripe.PaymentIntentParams {
	return &stripe.PaymentIntentParams{
		Params:        params(t, key),
		Amount:        stripe.Int64(2000),
		Currency:      stripe.String("usd"),
		PaymentMethod: stripe.String("pm_card_visa"),
		AutomaticPaymentMethods: &stripe.PaymentIntentAutomaticPaymentMethodsParams{
			Enabled:        stripe.Bool(true),
			AllowRedirects: stripe.String("never"),
		},
		Description: stripe.String("Order 1"),
		Metadata:    map[string]string{"order_id": "order-1", "idempotency_key_id": "0199"},
	}
}

func confirmParams(t *testing.T, key string) *stripe.PaymentIntentConfirmParams {
	return &stripe.PaymentIntentConfirmParams{Params: params(t, key), OffSession: stripe.Bool(true)}
}

func TestStripeGo_objects(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	api := newAPI(t, s.url)

	create := createParams(t, "create")
	pi, err := api.PaymentIntents.New(create)
	require.NoError(t, err)
	require.Equal(t, stripe.PaymentIntentStatusRequiresConfirmation, pi.Status)
	require.Equal(t, create.Metadata, pi.Metadata)
	require.Nil(t, pi.LatestCharge)

	pi, err = api.PaymentIntents.Confirm(pi.ID, confirmParams(t, "confirm"))
	require.NoError(t, err)
	require.Equal(t, stripe.PaymentIntentStatusSucceeded, pi.Status)
	require.Equal(t, int64(2000), pi.AmountReceived)
	require.NotEmpty(t, pi.LatestCharge.ID)
	require.Equal(t, "confirm", pi.LastResponse.Header.Get("Idempotency-Key"))

	get := &stripe.PaymentIntentParams{Params: params(t, "")}
	get.AddExpand("latest_charge")
	pi, err = api.PaymentIntents.Get(pi.ID, get)
	require.NoError(t, err)
	require.True(t, pi.LatestCharge.Paid)
	require.Equal(t, "visa", string(pi.LatestCharge.PaymentMethodDetails.Card.Brand))

	refund, err := api.Refunds.New(&stripe.RefundParams{
		Params:        params(t, "refund"),
		PaymentIntent: stripe.String(pi.ID),
		Amount:        stripe.Int64(500),
		Reason:        stripe.String("requested_by_customer"),
		Metadata:      map[string]string{"order_id": "order-1"},
	})
	require.NoError(t, err)
	require.Equal(t, stripe.RefundStatusSucceeded, refund.Status)
	require.Equal(t, pi.LatestCharge.ID, refund.Charge.ID)

	charges := api.Charges.List(&stripe.ChargeListParams{
		ListParams: stripe.ListParams{Context: t.Context()}, PaymentIntent: stripe.String(pi.ID),
	})
	require.True(t, charges.Next())
	require.Equal(t, int64(500), charges.Charge().AmountRefunded)
	require.False(t, charges.Next())
	require.NoError(t, charges.Err())
}

func TestStripeGo_errors(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	api := newAPI(t, s.url)
	failure := func(err error) *stripe.Error {
		var failure *stripe.Error
		require.True(t, errors.As(err, &failure), "%v", err)
		return failure
	}

	create := createParams(t, "declined")
	create.PaymentMethod = stripe.String("pm_card_visa_chargeDeclinedInsufficientFunds")
	pi, err := api.PaymentIntents.New(create)
	require.NoError(t, err)
	_, err = api.PaymentIntents.Confirm(pi.ID, confirmParams(t, "declined-confirm"))
	e := failure(err)
	require.Equal(t, http.StatusPaymentRequired, e.HTTPStatusCode)
	require.Equal(t, stripe.ErrorTypeCard, e.Type)
	require.Equal(t, stripe.ErrorCodeCardDeclined, e.Code)
	require.Equal(t, stripe.DeclineCodeInsufficientFunds, e.DeclineCode)
	require.Equal(t, e.ChargeID, e.PaymentIntent.LatestCharge.ID)
	require.NotEmpty(t, e.PaymentMethod.ID)
	require.NotEmpty(t, e.RequestID)

	_, err = api.PaymentIntents.Confirm(pi.ID, confirmParams(t, "again"))
	e = failure(err)
	require.Equal(t, http.StatusBadRequest, e.HTTPStatusCode)
	require.Equal(t, stripe.ErrorCodePaymentIntentUnexpectedState, e.Code)
	require.Equal(t, pi.ID, e.PaymentIntent.ID)

	_, err = api.Refunds.New(&stripe.RefundParams{Params: params(t, "declined")})
	require.Equal(t, stripe.ErrorTypeIdempotency, failure(err).Type)
}

func TestStripeGo_list(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	api := newAPI(t, s.url)
	for range 25 {
		_, err := api.PaymentIntents.New(createParams(t, ""))
		require.NoError(t, err)
	}
	walk := func(change func(*stripe.PaymentIntentListParams)) (seen []string, err error) {
		list := &stripe.PaymentIntentListParams{
			ListParams:   stripe.ListParams{Context: t.Context(), Limit: stripe.Int64(10)},
			CreatedRange: &stripe.RangeQueryParams{GreaterThanOrEqual: s.Now().Add(-time.Hour).Unix()},
		}
		change(list)
		it := api.PaymentIntents.List(list)
		for it.Next() {
			seen = append(seen, it.PaymentIntent().ID)
		}
		return seen, it.Err()
	}
	all, err := walk(func(*stripe.PaymentIntentListParams) {})
	require.NoError(t, err)
	require.Len(t, all, 25)

	newer, err := walk(func(p *stripe.PaymentIntentListParams) { p.EndingBefore = stripe.String(all[24]) })
	require.NoError(t, err)
	require.Len(t, newer, 24)
	require.Equal(t, all[23], newer[0], "stripe-go reverses the order")

	none, err := walk(func(p *stripe.PaymentIntentListParams) {
		p.CreatedRange = &stripe.RangeQueryParams{GreaterThan: s.Now().Add(time.Hour).Unix()}
	})
	require.NoError(t, err)
	require.Empty(t, none)

	broken := s.Inject(stripetest.Rule{Fault: stripetest.NextPageError})
	some, err := walk(func(*stripe.PaymentIntentListParams) {})
	require.Error(t, err, "only Err reports that the list is incomplete")
	require.Len(t, some, 10)
	require.Equal(t, 1, broken.Triggered())
}
