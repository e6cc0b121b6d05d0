package orders_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

// anotherAccount sends all calls to another account of the provider until the next outcome, as a
// wrong API key does.
func anotherAccount(f *fixture) {
	f.t.Helper()
	server := httptest.NewServer(stripetest.New(stripetest.Options{}))
	f.t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	require.NoError(f.t, err)
	f.transport.intercept(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		req = req.Clone(req.Context())
		req.URL.Host, req.Host = at.Host, at.Host
		return next.RoundTrip(req)
	})
}

// Another account knows neither the payment method nor the intents. Its errors are not final.
func TestCreate_anotherAccount(t *testing.T) {
	t.Parallel()
	shared := newFixture(t, options{clock: aDayAgo}, create("201"))
	f := shared.withNewKey(t)
	known := f.outOfBand("/v1/payment_intents", url.Values{"amount": {"100"}, "currency": {"usd"}, "payment_method": {visa}})
	f.do(
		payWith(known.PaymentMethod),
		anotherAccount, create("503 unavailable, 1m0s"),
		retry("201"), expectCharges(1),
	)
	f = shared.withNewKey(t)
	f.do(payWith("pm_nobody_knows"), create("422 resource_missing"))

	f = shared.withNewKey(t)
	f.do(
		loseResponse(createIntent), create("503 unavailable, 1s"), pass(25*time.Hour),
		anotherAccount, retry("503 unavailable, 1m0s"),
		retry("422 charge_window_over"), expectIntents("canceled"),
	)
}
