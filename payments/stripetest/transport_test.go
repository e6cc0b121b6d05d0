package stripetest_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"example.com/orders-api/payments/stripetest"
)

// The same faults through stripe-go: which of them it can read as an answer of
// Stripe's, and which are mere failures of the connection.
func TestEveryFaultThroughStripeGo(t *testing.T) {
	t.Parallel()
	tests := map[stripetest.Fault]int{
		stripetest.CloseBefore:  0,
		stripetest.RateLimit:    429,
		stripetest.LockTimeout:  429,
		stripetest.Unauthorized: 401,
		stripetest.Unavailable:  0,
		stripetest.KeyInUse:     409,
		stripetest.ErrorBefore:  500,
		stripetest.ErrorAfter:   500,
		stripetest.ErrorLater:   500,
		stripetest.CloseAfter:   0,
		stripetest.ResetAfter:   0,
		stripetest.CutBody:      0,
		stripetest.BadGateway:   0,
	}
	for fault, status := range tests {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			s := start(t, stripetest.Options{})
			api := newAPI(t, s.url)
			pi, err := api.PaymentIntents.New(createParams(t, "create"))
			require.NoError(t, err)
			s.Inject(stripetest.Rule{Fault: fault})

			_, err = api.PaymentIntents.Confirm(pi.ID, confirmParams(t, "confirm"))
			require.Error(t, err)
			var failure *stripe.Error
			require.Equal(t, status != 0, errors.As(err, &failure), "%v", err)
			if status != 0 {
				require.Equal(t, status, failure.HTTPStatusCode)
			}

			pi, err = api.PaymentIntents.Get(pi.ID, &stripe.PaymentIntentParams{Params: stripe.Params{Context: t.Context()}})
			require.NoError(t, err)
			require.Equal(t, len(s.Charges()) == 1, pi.Status == stripe.PaymentIntentStatusSucceeded)
		})
	}
}

// On a connection that it uses again, the transport itself repeats a request
// whose connection broke: one call, two requests, one execution.
func TestTheTransportResendsOnAReusedConnection(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	transport := &http.Transport{MaxConnsPerHost: 1}
	t.Cleanup(transport.CloseIdleConnections)
	s.client.Transport = transport
	path := intentsPath + "/" + s.create(unconfirmed) + "/confirm"
	s.Inject(stripetest.Rule{Fault: stripetest.CloseAfter})

	r := s.post(path, "k", "off_session=true")
	require.NoError(t, r.err)
	require.Equal(t, "true", r.header.Get("Idempotent-Replayed"))
	sent := 0
	for _, request := range s.Requests() {
		if request.Key == "k" {
			sent++
			require.True(t, strings.HasSuffix(request.Path, "/confirm"))
		}
	}
	require.Equal(t, 2, sent)
	require.Equal(t, 1, s.Executions("k"))
}
