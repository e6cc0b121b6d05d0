package orders_test

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/audit"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/orders"
	. "example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments/stripetest"
)

const (
	// After this age, the provider has forgotten an idempotency key.
	age = 25 * time.Hour

	notCreated = "422 payment_not_created"
)

func aDayAgo() time.Time { return time.Now().Add(-age) }

func latePeriod(f *Fixture) {
	f.Do(pass(orders.CreatePeriod))
	f.Transport.Reset()
}

func lateWindow(f *Fixture) {
	f.Do(pass(23 * time.Hour))
	f.Transport.Reset()
}

// An old order keeps a result that the provider has; otherwise its intent is cancelled (R24). Nothing is created or
// confirmed.
func TestChargeWindow(t *testing.T) {
	t.Parallel()
	const over = "422 charge_window_over"
	ends := func(outcome string) Step {
		return func(f *Fixture) {
			f.T.Helper()
			f.Do(Retry(outcome))
			require.NotRegexp(f.T, "create|confirm", f.Transport.Calls())
			for _, intent := range f.Intents() {
				require.Equal(f.T, outcome == "201", intent.Status == "succeeded", intent.Status)
				require.Contains(f.T, []string{"succeeded", "canceled"}, intent.Status)
			}
		}
	}
	for name, test := range map[string]struct{ past, now []Step }{
		"no intent":                     {[]Step{LoseRequest(CreateIntent), Create("503 unavailable, 1s")}, []Step{ends(notCreated)}},
		"intent created, response lost": {[]Step{LoseResponse(CreateIntent), Create("503 unavailable, 1s")}, []Step{ends(over)}},
		"unconfirmed":                   {[]Step{StopBefore(Confirm)}, []Step{ends(over)}},
		"charged, response lost":        {[]Step{LoseResponse(Confirm, GetIntent), Create("503 outcome unknown, 1s")}, []Step{ends("201")}},
		"charged by a run whose rows are lost": {
			[]Step{LoseResponse(Confirm, GetIntent), Create("503 outcome unknown, 1s"), loseIntent}, []Step{ends("201")},
		},
		"declined, response lost": {
			[]Step{PayWith("pm_card_chargeDeclinedIncorrectCvc"), LoseResponse(Confirm, GetIntent), Create("503 outcome unknown, 1s")},
			[]Step{ends("402 incorrect_cvc incorrect_cvc")},
		},
		"in process for days":               {[]Step{InProcess}, []Step{Retry("503 outcome unknown, 30s"), PaymentSucceeds, ends("201")}},
		"waits for the customer":            {[]Step{Challenge}, []Step{ends(over)}},
		"approved in time":                  {[]Step{Challenge, Approve}, []Step{ends("201")}},
		"not approved":                      {[]Step{Challenge, FailChallenge}, []Step{ends("402 payment_intent_authentication_failure")}},
		"approved after our cancel":         {[]Step{Challenge}, []Step{After(Cancel, CustomerCannotPay), ends(over)}},
		"charged before our cancel arrives": {[]Step{StopBefore(Confirm)}, []Step{Before(Cancel, confirmAtProvider), ends("201")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := NewFixture(t, Setup{Clock: aDayAgo}, test.past...)
			f.Do(pass(age), func(f *Fixture) { f.Transport.Reset() })
			f.Do(test.now...)
			f.CheckFinal()
		})
	}
}

func TestChargeWindow_limit(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{})
	for outcome, age := range map[string]time.Duration{
		"201":                    23*time.Hour - LeaseDuration - 30*time.Second,
		"422 charge_window_over": 23*time.Hour - LeaseDuration + time.Second,
	} {
		f := f.WithNewKey(t)
		f.Do(StopBefore(Confirm))
		f.Backdate(age)
		f.Do(Retry(outcome))
		f.CheckFinal()
	}

	f = f.WithNewKey(t) // an old key with a new order
	f.Do(StopBefore(CreateIntent))
	f.Exec("UPDATE idempotency_keys SET created_at = created_at - $1::interval", age)
	f.Do(Retry("201"))
}

func readStatus(ctx context.Context, f *Fixture) (result idempotency.Result, err error) {
	key, _, err := f.Engine.Lookup(ctx, f.Account, f.Key)
	if err == nil && key.State() == idempotency.StateActionRequired {
		checker := f.Engine.Operation(key.Operation).(interface {
			CheckAction(ctx context.Context, key idempotency.StoredKey) error
		})
		if err = checker.CheckAction(ctx, key); err == nil {
			if _, err = f.Engine.Resume(ctx, f.Account, key.ID); err == nil || errors.Is(err, httpjson.ErrOutcomeUnknown) {
				key, _, err = f.Engine.Lookup(ctx, f.Account, f.Key)
			}
		}
	}
	return result, cmp.Or(err, errors.New(key.State()))
}

// The completer ends the payment soon after the window, although the key has just run.
func TestChargeWindow_notApproved(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, Challenge)
	f.Backdate(23*time.Hour - LeaseDuration + time.Second)
	f.AgeLastRun(Grace)
	require.Equal(t, idempotency.CompleterResult{Completed: 1}, f.RunCompleter())
	f.Do(Create("422 charge_window_over"), expectIntents("canceled"))
	f.CheckFinal()
}

func TestChargeWindow_endsDuringRun(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{ChargeWindow: LeaseDuration + 100*time.Millisecond})
	f.Inject(stripetest.Rule{Fault: stripetest.Slow, Endpoint: CreateIntent, Delay: 200 * time.Millisecond})
	f.Do(Create("422 charge_window_over"), ExpectCalls("create 200, get 200, cancel 200"))
	f.CheckFinal()
}

func insertIntents(cards ...string) Step {
	return func(f *Fixture) {
		f.T.Helper()
		for _, card := range cards {
			f.InsertIntent("payment_method", card)
		}
	}
}

// actOn confirms or cancels the intent n of the order, by another call than ours.
func actOn(n int, act string) Step {
	return func(f *Fixture) { f.OutOfBand("/v1/payment_intents/" + f.Intents()[n].ID + "/" + act) }
}

// An order without an intent ends after half an hour, but not before a search has found none (R12). Of several
// intents, the one counts that is charged, or may be.
func TestCreatePeriod(t *testing.T) {
	t.Parallel()
	noIntent := []Step{LoseRequest(CreateIntent), Create("503 unavailable, 1s")}
	several := func(card, act string) []Step {
		return append(noIntent[:2:2], insertIntents(Visa, card, Visa), actOn(1, act))
	}
	among := func(status string) []string {
		return []string{"requires_confirmation", status, "requires_confirmation"}
	}
	for name, test := range map[string]struct {
		past    []Step
		now     []Step
		intents []string
	}{
		"several, one charged":         {several(Visa, "confirm"), []Step{latePeriod, Retry("201")}, among("succeeded")},
		"several, one declined":        {several(DeclinedCard, "confirm"), []Step{latePeriod, Retry("402 card_declined generic_decline")}, among("canceled")},
		"several, one cancelled":       {several(Visa, "cancel"), []Step{latePeriod, Retry("422 payment_intent_canceled")}, among("canceled")},
		"several, one processing":      {several(stripetest.ProcessingCard, "confirm"), []Step{latePeriod, Retry("503 outcome unknown, 30s"), PaymentSucceeds, Retry("201")}, among("succeeded")},
		"several, one requires action": {several(ChallengeCard, "confirm"), []Step{latePeriod, Retry("202 action required"), Approve, Retry("201")}, among("succeeded")},
		"several, one charged since it was listed": {
			append(noIntent[:2:2], insertIntents(Visa, Visa)), []Step{latePeriod, actOn(1, "confirm"), Retry("201")}, among("succeeded")[:2],
		},
		"no intent": {noIntent, []Step{latePeriod, Retry(notCreated), ExpectCalls("search 200")}, nil},
		"cancelled": {noIntent, []Step{
			func(f *Fixture) { f.Exec("UPDATE orders SET cancel_requested_at = now()") },
			latePeriod, Retry("422 canceled"), ExpectCalls("search 200"),
		}, nil},
		"the response was lost": {[]Step{LoseResponse(CreateIntent), Create("503 unavailable, 1s")}, []Step{
			latePeriod, Retry("201"), ExpectCalls("search 200, get 200 ×2, confirm 200"),
		}, []string{"succeeded"}},
		"the search fails": {noIntent, []Step{
			lateWindow, Fault(stripetest.RateLimit, Search), Retry("503 unavailable, 2s"), Retry(notCreated),
		}, nil},
		"no search, before the window is over": {noIntent, []Step{
			latePeriod, Fault(stripetest.NoSearch, Search), Retry("503 unavailable, 1m0s"), ExpectCalls("search 400"),
			lateWindow, Fault(stripetest.NoSearch, Search), Retry(notCreated), ExpectCalls("search 400"),
		}, nil},
		"the API key is rejected": {noIntent, []Step{
			latePeriod, Fault(stripetest.Unauthorized, Search), Retry("503 unavailable, 1m0s"), ExpectCalls("search 401"),
			lateWindow, Fault(stripetest.Unauthorized, Search), Retry(notCreated), ExpectCalls("search 401"),
		}, nil},
		"what the search finds cannot be read": {[]Step{LoseResponse(CreateIntent), Create("503 unavailable, 1s")}, []Step{
			lateWindow, Fault(stripetest.Unauthorized, GetIntent), Retry("503 unavailable, 1m0s"),
			Retry("422 charge_window_over"),
		}, []string{"canceled"}},
		"the account does not know our latest intent": {append([]Step{func(f *Fixture) {
			f.WithNewKey(f.T).Do(Create("201"))
			f.Exec("UPDATE orders SET payment_intent_id = 'pi_of_another_account'")
		}}, noIntent...), []Step{
			latePeriod, Retry("503 unavailable, 1m0s"), ExpectCalls("search 200, get 404"),
		}, nil},
		"the customer may still pay, so no other intent is created": {[]Step{Challenge, loseIntent, pass(5 * time.Minute)}, []Step{
			func(f *Fixture) { f.Exec("UPDATE orders SET status = 'pending'") },
			func(f *Fixture) { f.Transport.Reset() }, Retry("202 action required"), ExpectCalls("search 200, get 200 ×2"),
		}, []string{"requires_action"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := NewFixture(t, Setup{Unchecked: true, Clock: aDayAgo})
			f.Do(test.past...)
			f.Do(test.now...)
			f.Do(expectIntents(test.intents...))
		})
	}
}

// While creates are sent, a resumed run repeats its create, and the provider returns the same intent.
func TestCreatePeriod_limit(t *testing.T) {
	t.Parallel()
	for calls, age := range map[string]time.Duration{
		"search 200, get 200, create 200, get 200, confirm 200": orders.CreatePeriod - LeaseDuration - 30*time.Second,
		"search 200, get 200 ×2, confirm 200":                   orders.CreatePeriod - LeaseDuration + time.Second,
	} {
		f := NewFixture(t, Setup{Clock: aDayAgo}, LoseResponse(CreateIntent), Create("503 unavailable, 1s"), pass(age))
		f.Transport.Reset()
		f.Do(Retry("201"), ExpectCalls(calls), expectIntents("succeeded"))
		f.CheckFinal()
	}
}

// A create with other parameters was sent under the provider key, so an intent exists that the search may not find
// yet. The order fails only after an operator has dealt with it.
func TestCreatePeriod_otherParameters(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{Clock: aDayAgo, Unchecked: true})
	f.Do(LoseResponse(CreateIntent), Create("503 unavailable, 1s"), LoseRows, PayWith("pm_card_mastercard"), Create("503 unavailable, 1m0s"))
	f.Do(ExpectCalls("create 400"))
	f.Exec("UPDATE orders SET created_at = created_at - interval '1 hour'")
	f.Do(Retry("503 unavailable, 1m0s"), ExpectCalls("create 400, search 200"))
	acknowledgeOtherCreate(f)
	f.Do(Retry(notCreated))
}

func acknowledgeOtherCreate(f *Fixture) {
	f.T.Helper()
	open, err := jobs.Open(f.T.Context(), f.Pool)
	require.NoError(f.T, err)
	require.Len(f.T, open, 1)
	require.Equal(f.T, "create_with_other_parameters", open[0].LastError)
	_, err = jobs.DeleteFailed(f.T.Context(), f.Pool, open[0].ID, audit.Operator{Actor: "ada", Reason: "the intent was cancelled"})
	require.NoError(f.T, err)
}

// A search finds an intent of an earlier create with another amount. No run adopts it, because its charge is not that
// of the order. The order fails after an operator has cancelled it, or has refunded it and removed its metadata.
func TestCreatePeriod_otherAmount(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		parameters []string
		undo       func(f *Fixture, id string)
	}{
		"charged": {[]string{"confirm", "true"}, func(f *Fixture, id string) {
			f.OutOfBand("/v1/refunds", "payment_intent", id)
			f.OutOfBand("/v1/payment_intents/"+id, "metadata[order_id]", "refunded")
		}},
		"unconfirmed": {nil, func(f *Fixture, id string) { f.OutOfBand("/v1/payment_intents/" + id + "/cancel") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := NewFixture(t, Setup{Clock: aDayAgo, Unchecked: true})
			id := f.InsertIntent(append(test.parameters, "amount", "2600")...)
			f.Do(pass(2*time.Minute), RateLimit(CreateIntent), Create("503 unavailable, 2s"))
			f.Transport.Reset()
			f.Do(Retry("503 unavailable, 1m0s"), ExpectCalls("search 200, get 200"))
			var cause string
			require.NoError(t, f.Pool.QueryRow(t.Context(), "SELECT last_error FROM idempotency_keys WHERE account_id = $1", f.Account).Scan(&cause))
			require.Contains(t, cause, "create_with_other_parameters")
			f.Exec("UPDATE orders SET created_at = created_at - interval '1 hour'")
			f.Do(Retry("503 unavailable, 1m0s"))
			test.undo(f, id)
			f.Do(Retry("503 unavailable, 1m0s")) // until it is acknowledged
			acknowledgeOtherCreate(f)
			f.Do(Retry(notCreated), ExpectCharges(len(test.parameters)/2))
		})
	}
}

// It also needs an operator beside an intent of the order's amount, in any order, because it may still be charged.
func TestCreatePeriod_twoAmounts(t *testing.T) {
	t.Parallel()
	for _, amounts := range [][]string{{"2600", strconv.Itoa(OrderAmount)}, {strconv.Itoa(OrderAmount), "2600"}} {
		f := NewFixture(t, Setup{Clock: aDayAgo, Unchecked: true})
		for _, amount := range amounts {
			f.InsertIntent("amount", amount)
		}
		f.Do(pass(2*time.Minute), RateLimit(CreateIntent), Create("503 unavailable, 2s"), Retry("503 unavailable, 1m0s"))
		acknowledgeOtherCreate(f)
	}
}

// A charge window that is shorter ends the creates as well.
func TestCreatePeriod_shortWindow(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{ChargeWindow: 2 * LeaseDuration}, LoseRequest(CreateIntent), Create("503 unavailable, 1s"))
	f.Backdate(LeaseDuration + time.Second)
	f.Do(Retry(notCreated))
	f.CheckFinal()
}
