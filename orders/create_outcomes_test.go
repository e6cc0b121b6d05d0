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

func createOutcomes() scenarios {
	table := scenarios{
		"stored 500 without an effect": {
			faultOnce(stripetest.ErrorBefore, createIntent), create("201"),
			expectCalls("create 500, create-2 200, confirm 200"),
		},
		"stored 500 after the effect, which leaves an unconfirmed intent": {
			faultOnce(stripetest.ErrorAfter, createIntent), create("201"),
			expectCalls("create 500, create-2 200, confirm 200"),
		},
		"stored 500 before the effect": {
			faultOnce(stripetest.ErrorLater, createIntent), create("201"),
			expectCalls("create 500, create-2 200, confirm 200"),
		},
		"500 under every key, so a retry first receives the stored 500": {
			fault(stripetest.ErrorBefore, createIntent), create("503 unavailable, 30s"),
			fault(stripetest.ErrorAfter, createIntent), retry("503 unavailable, 30s"),
			retry("201"),
			expectCalls("create 500, create-2 500, search 200, create-2 500, search 200, create-3 500, search 200, create-3 500, search 200, create-4 200, get 200, confirm 200"),
		},
		"rate limited, then an unknown payment method": {
			payWith("pm_nobody_knows"),
			rateLimit(createIntent), create("503 unavailable, 2s"),
			retry("422 resource_missing"),
			expectCalls("create 429 ×3, search 200, create 400, get 200"),
		},
		"unauthorized": {
			fault(stripetest.Unauthorized, createIntent), create("503 unavailable, 1m0s"), expectAlert,
			retry("201"),
			expectCalls("create 401, search 200, create 200, get 200, confirm 200"),
		},
	}
	for kind, test := range map[stripetest.Fault]struct{ outcome, calls string }{
		stripetest.CloseBefore: {"503 unavailable, 1s", "create 0 ×3"},
		stripetest.RateLimit:   {"503 unavailable, 2s", "create 429 ×3"},
		stripetest.Unavailable: {"503 unavailable, 2s", "create 503 ×3"},
		stripetest.KeyInUse:    {"503 unavailable, 2s", "create 409 ×3"},
		stripetest.CloseAfter:  {"503 unavailable, 1s", "create 0 ×3"},
		stripetest.CutBody:     {"503 unavailable, 2s", "create 200 ×3"},
		stripetest.BadGateway:  {"503 unavailable, 2s", "create 502 ×3"},
	} {
		table[string(kind)] = []step{
			fault(kind, createIntent), create(test.outcome),
			retry("201"),
			expectCalls(test.calls + ", search 200, create 200, get 200, confirm 200"),
		}
	}
	return table
}

// The provider account is not set up. Stripe replays this error, so the key is rotated.
func accountOutcomes() scenarios {
	return scenarios{
		"create": {
			fault(stripetest.AccountNotReady, createIntent), create("503 unavailable, 1m0s"), expectAlert,
			fault(stripetest.AccountNotReady, createIntent), retry("503 unavailable, 1m0s"),
			retry("201"),
			expectCalls("create 400, search 200, create 400, search 200, create-2 400, search 200, create-2 400, search 200, create-3 200, get 200, confirm 200"),
		},
		"confirm": {
			fault(stripetest.AccountNotReady, confirm), create("503 unavailable, 1m0s"), expectAlert,
			fault(stripetest.AccountNotReady, confirm), retry("503 outcome unknown, 1m0s"),
			retry("201"),
			expectCalls("create 200, confirm 400, get 200, confirm 400, get 200 ×2, confirm-2 400, get 200 ×2, " +
				"confirm-2 400, get 200 ×2, confirm-3 200"),
		},
		"cancel": {
			requireAction,
			fault(stripetest.AccountNotReady, cancel), retry("503 outcome unknown, 1m0s"), expectAlert,
			retry("402 authentication_required authentication_required"),
			expectCalls("get 200, cancel 400, get 200, cancel 400, get 200, cancel-2 200"),
		},
	}
}

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
