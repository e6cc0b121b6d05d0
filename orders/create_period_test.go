package orders_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/audit"
	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments/stripetest"
)

const notCreated = "422 payment_not_created"

func latePeriod(f *fixture) {
	f.do(pass(orders.CreatePeriod))
	f.transport.reset()
}

func lateWindow(f *fixture) {
	f.do(pass(23 * time.Hour))
	f.transport.reset()
}

// An order without an intent ends after half an hour, but not before a search has found none (R12).
func TestCreatePeriod(t *testing.T) {
	t.Parallel()
	noIntent := []step{loseRequest(createIntent), create("503 unavailable, 1s")}
	for name, test := range map[string]struct {
		past    []step
		now     []step
		intents []string
	}{
		"no intent": {noIntent, []step{latePeriod, retry(notCreated), expectCalls("search 200")}, nil},
		"cancelled": {noIntent, []step{
			func(f *fixture) { f.exec("UPDATE orders SET cancel_requested_at = now()") },
			latePeriod, retry("422 canceled"), expectCalls("search 200"),
		}, nil},
		"the response was lost": {[]step{loseResponse(createIntent), create("503 unavailable, 1s")}, []step{
			latePeriod, retry("201"), expectCalls("search 200, get 200 ×2, confirm 200"),
		}, []string{"succeeded"}},
		"the search fails": {noIntent, []step{
			lateWindow, fault(stripetest.RateLimit, search), retry("503 unavailable, 2s"), retry(notCreated),
		}, nil},
		"no search, before the window is over": {noIntent, []step{
			latePeriod, fault(stripetest.NoSearch, search), retry("503 unavailable, 1m0s"), expectCalls("search 400"),
			lateWindow, fault(stripetest.NoSearch, search), retry(notCreated), expectCalls("search 400"),
		}, nil},
		"the API key is rejected": {noIntent, []step{
			latePeriod, fault(stripetest.Unauthorized, search), retry("503 unavailable, 1m0s"), expectCalls("search 401"),
			lateWindow, fault(stripetest.Unauthorized, search), retry(notCreated), expectCalls("search 401"),
		}, nil},
		"what the search finds cannot be read": {[]step{loseResponse(createIntent), create("503 unavailable, 1s")}, []step{
			lateWindow, fault(stripetest.Unauthorized, getIntent), retry("503 unavailable, 1m0s"),
			retry("422 charge_window_over"),
		}, []string{"canceled"}},
		"the account does not know our latest intent": {append([]step{func(f *fixture) {
			f.withNewKey(f.t).do(create("201"))
			f.exec("UPDATE orders SET payment_intent_id = 'pi_of_another_account'")
		}}, noIntent...), []step{
			latePeriod, retry("503 unavailable, 1m0s"), expectCalls("search 200, get 404"),
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{unchecked: true, clock: aDayAgo})
			f.do(test.past...)
			f.do(test.now...)
			f.do(expectIntents(test.intents...))
		})
	}
}

// While creates are sent, a resumed run repeats its create, and the provider returns the same intent.
func TestCreatePeriod_limit(t *testing.T) {
	t.Parallel()
	for calls, age := range map[string]time.Duration{
		"search 200, get 200, create 200, get 200, confirm 200": orders.CreatePeriod - leaseDuration - 30*time.Second,
		"search 200, get 200 ×2, confirm 200":                   orders.CreatePeriod - leaseDuration + time.Second,
	} {
		f := newFixture(t, options{clock: aDayAgo}, loseResponse(createIntent), create("503 unavailable, 1s"), pass(age))
		f.transport.reset()
		f.do(retry("201"), expectCalls(calls), expectIntents("succeeded"))
		f.checkFinal()
	}
}

// A create with other parameters was sent under the provider key, so an intent exists that the search may not find
// yet. The order fails only after an operator has dealt with it.
func TestCreatePeriod_otherParameters(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{clock: aDayAgo, unchecked: true})
	f.do(loseResponse(createIntent), create("503 unavailable, 1s"), loseRows, payWith("pm_card_mastercard"), create("503 unavailable, 1m0s"))
	f.do(expectCalls("create 400"))
	f.exec("UPDATE orders SET created_at = created_at - interval '1 hour'")
	f.do(retry("503 unavailable, 1m0s"), expectCalls("create 400, search 200"))
	open, err := jobs.Open(t.Context(), f.Pool)
	require.NoError(t, err)
	require.Len(t, open, 1)
	require.Equal(t, "create_with_other_parameters", open[0].LastError)
	_, err = jobs.DeleteFailed(t.Context(), f.Pool, open[0].ID, audit.Operator{Actor: "ada", Reason: "the intent was cancelled"})
	require.NoError(t, err)
	f.do(retry(notCreated))
}

// A charge window that is shorter ends the creates as well.
func TestCreatePeriod_shortWindow(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{chargeWindow: 2 * leaseDuration}, loseRequest(createIntent), create("503 unavailable, 1s"))
	f.backdate(leaseDuration + time.Second)
	f.do(retry(notCreated))
	f.checkFinal()
}

// The search may return an old status.
func TestCreatePeriod_staleSearch(t *testing.T) {
	t.Parallel()
	f := newOldFixture(t, loseRequest(createIntent), create("503 unavailable, 1s"))
	charged := f.insertIntent(visa, orderAmount)
	f.insertIntent(visa, orderAmount)
	f.passDay()
	f.outOfBand("/v1/payment_intents/"+charged+"/confirm", nil)
	f.do(retry("201"), expectCalls("search 200, get 200 ×3"), expectCharges(1))
	f.checkFinal()
}

// The customer may still pay, so no other intent is created.
func TestCreatePeriod_waits(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{clock: aDayAgo}, challenge, loseIntent, pass(5*time.Minute))
	f.transport.reset()
	f.exec("UPDATE orders SET status = 'pending'")
	f.do(retry("202 action required"), expectCalls("search 200, get 200 ×2"))
	require.Len(t, f.intents(), 1)
}
