package stripetest_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"example.com/orders-api/payments/stripetest"
	"example.com/orders-api/payments/stripetest/stripemock"
)

// The requests that the orders API makes are valid by Stripe's own API
// description, and the stand-in takes no more and no less.
func TestTheRequestsWeMakeAreStripes(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	for name, api := range map[string]*stripeAPI{
		"stripe-mock":  newAPI(t, stripemock.Start(t)),
		"the stand-in": newAPI(t, s.url),
	} {
		t.Run(name, func(t *testing.T) {
			pi, err := api.PaymentIntents.New(createParams(t, "create"))
			require.NoError(t, err)
			requireOK(t, pi.LastResponse)

			confirmed, err := api.PaymentIntents.Confirm(pi.ID, confirmParams(t, "confirm"))
			require.NoError(t, err)
			requireOK(t, confirmed.LastResponse)

			read, err := api.PaymentIntents.Get(pi.ID, &stripe.PaymentIntentParams{Params: params(t, "")})
			require.NoError(t, err)
			requireOK(t, read.LastResponse)

			list := api.PaymentIntents.List(&stripe.PaymentIntentListParams{
				ListParams:   stripe.ListParams{Context: t.Context(), Limit: stripe.Int64(100), Single: true},
				CreatedRange: &stripe.RangeQueryParams{GreaterThanOrEqual: time.Now().Add(-time.Hour).Unix()},
			})
			require.NoError(t, list.Err())
			requireOK(t, list.PaymentIntentList().LastResponse)

			refund, err := api.Refunds.New(&stripe.RefundParams{
				Params:        params(t, "refund"),
				PaymentIntent: stripe.String(pi.ID),
				Amount:        stripe.Int64(500),
				Reason:        stripe.String("requested_by_customer"),
				Metadata:      map[string]string{"order_id": "order-1", "refund_id": "refund-1"},
			})
			require.NoError(t, err)
			requireOK(t, refund.LastResponse)

			other, err := api.PaymentIntents.New(createParams(t, "other"))
			require.NoError(t, err)
			cancelled, err := api.PaymentIntents.Cancel(other.ID, &stripe.PaymentIntentCancelParams{Params: params(t, "cancel")})
			require.NoError(t, err)
			requireOK(t, cancelled.LastResponse)

			// The check can fail.
			misspelt := createParams(t, "misspelt")
			misspelt.AddExtra("metdata[order_id]", "order-1")
			_, err = api.PaymentIntents.New(misspelt)
			var refused *stripe.Error
			require.ErrorAs(t, err, &refused)
			require.Equal(t, http.StatusBadRequest, refused.HTTPStatusCode)
		})
	}
}

func requireOK(t *testing.T, r *stripe.APIResponse) {
	t.Helper()
	require.NotNil(t, r)
	require.Equal(t, http.StatusOK, r.StatusCode, string(r.RawJSON))
}
