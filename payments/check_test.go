package payments_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rule     stripetest.Rule
		rejected bool
		text     string // of the error
	}{
		"wrong key":              {stripetest.Rule{Fault: stripetest.Unauthorized}, true, "status 401"},
		"no permission, intents": {stripetest.Rule{Fault: stripetest.Forbidden, Endpoint: "GET /v1/payment_intents"}, true, "read PaymentIntents: payments: not_executed, status 403"},
		"no permission, refunds": {stripetest.Rule{Fault: stripetest.Forbidden, Endpoint: "GET /v1/refunds"}, true, "read Refunds: payments: not_executed, status 403"},
		"rate limit":             {stripetest.Rule{Fault: stripetest.RateLimit}, false, "status 429"},
		"proxy":                  {stripetest.Rule{Fault: stripetest.Unavailable}, false, "status 503"},
		"no response":            {stripetest.Rule{Fault: stripetest.CloseBefore}, false, "no response"},
		"hangs":                  {stripetest.Rule{Fault: stripetest.HoldArrival}, false, "deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := stripetest.New(stripetest.Options{})
			server := httptest.NewServer(fake)
			t.Cleanup(server.Close)
			t.Cleanup(fake.Close)
			test.rule.Times = stripetest.Always
			fake.Inject(test.rule)
			client := newClient(t, payments.NewTransport(), at(server.URL))
			ctx := t.Context()
			if name == "hangs" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
			}
			rejected, err := client.Check(ctx)
			_ = failure(t, err)
			require.ErrorContains(t, err, test.text)
			require.Equal(t, test.rejected, rejected)
		})
	}
}
