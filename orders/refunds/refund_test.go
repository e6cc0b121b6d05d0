package refunds_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	. "example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments/stripetest"
)

// Stripe would refuse an amount that is no multiple of the currency's step, which would use up the key.
func TestRefund_threeDecimals(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{})
	order := OrderRequest(t, f.Account, f.Key, Visa)
	order.Params = fmt.Appendf(nil, `{"currency":"kwd","email":"ada@example.com","items":%s,"payment_method":%q}`,
		`[{"quantity":1,"sku":"TEA","unit_amount":5325},{"quantity":2,"sku":"GIFT","unit_amount":0},{"quantity":1,"sku":"SAVE","unit_amount":-205}]`, Visa)
	require.Equal(t, "201", Outcome(f.Send(order)))
	require.Equal(t, map[string]int64{"kwd": 5120}, f.Stripe.MoneyMoved())
	require.Equal(t, "422 invalid", Outcome(f.RefundOrder(OneRefund, `{"amount":124}`)))
	require.Equal(t, "201", Outcome(f.RefundOrder(OneRefund, `{"amount":120}`)), "the key was not used")
	require.Equal(t, "201", Outcome(f.RefundOrder("all-that-is-left-of-it", `{}`)))
}

// Ten concurrent refunds, each sent twice, never refund more than was charged.
func TestRefund_concurrent(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body     string
		made     int
		faults   []stripetest.Rule
		refunded int64
		rejected []string
	}{
		"whole amount":              {`{}`, 1, nil, 4300, []string{"422 order-not-refundable, and the key is unused"}},
		"parts, and responses lost": {`{"amount":1000}`, 4, []stripetest.Rule{{Fault: stripetest.CloseAfter, Endpoint: MakeRefund, Times: 7}}, 4000, []string{"422 refund-exceeds-remaining, and the key is unused, 300 remain"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const racers = 10
			f := NewFixture(t, Setup{Connections: 8, Concurrent: true}, CreatePaid(Visa))
			for _, rule := range test.faults {
				f.Stripe.Inject(rule)
			}
			var all sync.WaitGroup
			outcomes := make([]string, 2*racers)
			for i := range outcomes {
				req := RefundRequest(t, f.Account, OrderID(f.Account, f.Key), idempotency.Key(fmt.Sprintf("one-of-ten-refunds-%d", i/2)), test.body)
				all.Go(func() { outcomes[i] = Outcome(f.Refund(t.Context(), req)) })
			}
			all.Wait()
			for i, outcome := range outcomes {
				require.Contains(t, append(test.rejected, "201", "409 in progress"), outcome, "racer %d", i)
			}
			made := 0
			for i := range racers {
				outcome := Outcome(f.RefundOrder(idempotency.Key(fmt.Sprintf("one-of-ten-refunds-%d", i)), test.body))
				require.Contains(t, append(test.rejected, "201"), outcome)
				if outcome == "201" {
					made++
				}
			}
			require.Equal(t, test.made, made)
			require.Len(t, f.Stripe.Refunds(), made)
			require.Equal(t, test.refunded, f.Stripe.Charges()[0].Refunded)
			CheckRefundInvariants(t, f)
		})
	}
}

// The client's retry finds a lost refund at the provider, at any age (R5, derived ids).
func TestRefund_rowsLostInRestore(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, CreatePaid(Visa), Refund("201"), LoseRefunds)
	sent := f.Stripe.Requests()[len(f.Stripe.Requests())-1]
	require.Equal(t, "orders-api-"+idempotency.KeyID(f.Account, f.RefundKey()).String()+"-refund", sent.Key, "it must never change")
	require.Contains(t, string(sent.Body), "reason=duplicate")
	f.Stripe.Advance(48 * time.Hour)
	f.Do(Refund("201"), ExpectSummary(refunded))
	require.Len(t, f.Stripe.Refunds(), 1)
	CheckRefundInvariants(t, f)
}

// Of two lost refunds, that of the rest is retried first, when the rest is larger than it was.
func TestRefund_lostRest(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, CreatePaid(Visa))
	const theRest = idempotency.Key("the-key-of-the-rest")
	require.Equal(t, "201", Outcome(f.RefundOrder(OneRefund, OneBody)))
	require.Equal(t, "201", Outcome(f.RefundOrder(theRest, `{}`)))
	LoseRefunds(f)
	require.Equal(t, "201", Outcome(f.RefundOrder(theRest, `{}`)))
	require.EqualValues(t, 2500, f.GetRefund(theRest).Amount)
	require.Equal(t, "201", Outcome(f.RefundOrder(OneRefund, OneBody)))
	require.Equal(t, "refunded 4300, succeeded 1800, succeeded 2500; 4300", f.Summary())
	CheckRefundInvariants(t, f)
}

func ageLastSend(age time.Duration) Step {
	return func(f *Fixture) { f.Exec("UPDATE refunds SET provider_sent_at = provider_sent_at - $1::interval", age) }
}

func resolveRefund(want string) Step {
	return func(f *Fixture) {
		f.T.Helper()
		f.Expect(want, func(f *Fixture) (idempotency.Result, error) { return f.ResolveKey(f.RefundKey()) })
	}
}

// Unless Stripe has saved a refusal under our key, an earlier call with this key may still be executed
// after the cause of the refusal has gone. So the refusal is not final until no such call can arrive.
func TestRefund_refusedWhileInFlight(t *testing.T) {
	t.Parallel()
	const refusal = `"type":"invalid_request_error","code":"charge_disputed"`
	disputed := Respond(MakeRefund, http.StatusBadRequest, refusal)
	for name, send := range map[string]func(*Fixture, Interceptor){
		"by an earlier run": func(f *Fixture, delay Interceptor) {
			f.Inject(stripetest.Rule{Fault: stripetest.CloseBefore, Endpoint: MakeRefund, After: 1, Times: stripetest.Always})
			f.Transport.Intercept(delay)
			f.Do(Refund("503 outcome unknown, 1s"), disputed, Retry("503 outcome unknown, 10m0s"))
		},
		"by an earlier attempt": func(f *Fixture, delay Interceptor) {
			f.Transport.Intercept(inOrder(MakeRefund, delay, func(req *http.Request, _ http.RoundTripper) (*http.Response, error) {
				return ErrorResponse(req, http.StatusBadRequest, refusal), nil
			}))
			f.Do(Refund("503 outcome unknown, 10m0s"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := NewFixture(t, Setup{}, CreatePaid(Visa))
			delayed := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldArrival, Endpoint: MakeRefund})
			send(f, inOrder(MakeRefund, func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
				return hangUp(req, next, delayed)
			}))
			f.Do(ExpectSummary("paid 0, pending 1800; 0"))
			delayed.Release()
			require.Eventually(t, func() bool { return len(f.Stripe.Refunds()) == 1 }, time.Minute, time.Millisecond)
			f.Do(Retry("201"), ExpectSummary(refunded))
			CheckRefundInvariants(t, f)
		})
	}

	f := NewFixture(t, Setup{}, CreatePaid(Visa))
	f.Do(
		LoseRequest(MakeRefund), Refund("503 outcome unknown, 1s"), ageLastSend(9*time.Minute),
		disputed, Retry("503 outcome unknown, 10m0s"), ageLastSend(2*time.Minute),
		disputed, Retry("422 charge_disputed"), ExpectSummary(notRefunded),
	)
	CheckRefundInvariants(t, f)
}

// hangUp gives a call up when it has arrived.
func hangUp(req *http.Request, next http.RoundTripper, held *stripetest.Injection) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	go func() {
		defer cancel()
		select {
		case <-held.Reached():
		case <-ctx.Done():
		}
	}()
	response, err := next.RoundTrip(req.WithContext(ctx))
	if err != nil && req.Context().Err() == nil {
		err = context.DeadlineExceeded
	}
	return response, err
}

func inOrder(call string, each ...Interceptor) Interceptor {
	return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if CallOf(req) != call || len(each) == 0 {
			return next.RoundTrip(req)
		}
		first := each[0]
		each = each[1:]
		return first(req, next)
	}
}

// A dispute prevents a refund until it is won. So another key may succeed.
func TestRefund_disputed(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, CreatePaid(Visa))
	dispute, err := f.Stripe.Dispute(f.IntentID(), 700, "fraudulent", "needs_response")
	require.NoError(t, err)
	f.Do(Refund("422 charge_disputed"))
	require.Contains(t, string(f.Result.Response.Body), `"retry":"new-key"`)
	require.NoError(t, f.Stripe.UpdateDispute(dispute, "won"))
	f.Do(Retry("422 charge_disputed"))
	require.Equal(t, "201", Outcome(f.RefundOrder("after-the-dispute", OneBody)))
	CheckRefundInvariants(t, f)
}

func retryUnsent(f *Fixture) {
	f.Do(MakeUnavailable(ListRefunds), Retry("503 outcome unknown, 2s"))
}

func TestResolve_refund(t *testing.T) {
	t.Parallel()
	idle := func(f *Fixture) { f.AgeLastRun(11 * time.Minute) }
	const closed = "422 canceled"
	for name, test := range map[string]struct {
		steps   []Step
		outcome string
		summary string
	}{
		"made, response lost": {[]Step{LoseResponse(MakeRefund), SecondListUnavailable, Refund("503 outcome unknown, 2s")}, "201", refunded},
		"the list of another account is empty": {
			[]Step{LoseResponse(MakeRefund), SecondListUnavailable, Refund("503 outcome unknown, 2s"), idle, AnotherAccount},
			"503 outcome unknown, 1m0s", "paid 0, pending 1800; 1800",
		},
		"not made, may be in flight": {
			[]Step{LoseRequest(MakeRefund), Refund("503 outcome unknown, 1s")},
			"503 outcome unknown, 10m0s", "paid 0, pending 1800; 0",
		},
		"not made, and a later call may be in flight": {
			[]Step{
				LoseRequest(MakeRefund), Refund("503 outcome unknown, 1s"), ageLastSend(11 * time.Minute),
				LoseRequest(MakeRefund), Retry("503 outcome unknown, 1s"),
			}, "503 outcome unknown, 10m0s", "paid 0, pending 1800; 0",
		},
		"not made, and only operators have run since": {
			[]Step{
				LoseRequest(MakeRefund), Refund("503 outcome unknown, 1s"), ageLastSend(9 * time.Minute),
				retryUnsent, resolveRefund("503 outcome unknown, 10m0s"), ageLastSend(2 * time.Minute),
			}, closed, notRefunded,
		},
		"refused again and again": {
			[]Step{
				Fault(stripetest.BalanceTooLow, MakeRefund), Refund("503 unavailable, 1m0s"), Retry("503 unavailable, 1m0s"),
				Fault(stripetest.BalanceTooLow, MakeRefund), Retry("503 unavailable, 1m0s"), Retry("503 unavailable, 1m0s"),
			}, closed, notRefunded,
		},
		"not made, and refused at a later call": {
			[]Step{
				LoseRequest(MakeRefund), Refund("503 outcome unknown, 1s"), ageLastSend(9 * time.Minute),
				RateLimit(MakeRefund), Retry("503 outcome unknown, 2s"), ageLastSend(2 * time.Minute),
			}, closed, notRefunded,
		},
		"not made, nothing in flight": {[]Step{LoseRequest(MakeRefund), Refund("503 outcome unknown, 1s"), idle}, closed, notRefunded},
		"stored 500, and the effect may follow": {
			[]Step{FaultOnce(stripetest.ErrorBefore, MakeRefund), Refund("503 outcome unknown, 1h0m0s"), idle},
			"503 outcome unknown, 1h0m0s", "paid 0, pending 1800; 0",
		},
		"stored 500, a day later": {
			[]Step{FaultOnce(stripetest.ErrorBefore, MakeRefund), Refund("503 outcome unknown, 1h0m0s"), idle, ExpireProviderKeys},
			closed, notRefunded,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := NewFixture(t, Setup{}, CreatePaid(Visa))
			f.Do(test.steps...)
			require.Equal(t, test.outcome, Outcome(f.ResolveKey(f.RefundKey())))
			f.Do(ExpectSummary(test.summary))
			switch test.outcome {
			case "503 outcome unknown, 10m0s":
				require.Equal(t, test.outcome, Outcome(f.ResolveKey(f.RefundKey())), "the first resolve was a run, too")
			case closed:
				f.Do(Retry(closed))
				require.Equal(t, "201", Outcome(f.RefundOrder("the-same-refund-again", `{}`)), "the amount is released")
				CheckRefundInvariants(t, f)
			}
		})
	}
}

func markedRefund(f *Fixture) { f.RequireMark("refunds", RefundID(f.Account, f.RefundKey())) }

func expectRefundsAtProvider(n int) Step {
	return func(f *Fixture) { require.Len(f.T, f.Stripe.Refunds(), n) }
}

// No run makes a marked refund any more, whenever it is, and whatever resumes it. One that exists
// is adopted.
func TestMark_refund(t *testing.T) {
	t.Parallel()
	const closed, inFlight = "422 canceled", "503 outcome unknown, 10m0s"
	weeks := func(f *Fixture) { f.AgeLastRun(21 * 24 * time.Hour); ExpireProviderKeys(f) }
	later := func(f *Fixture) { f.AgeLastRun(11 * time.Minute) }
	byCompleter := func(f *Fixture) { require.Equal(f.T, 1, f.RunCompleter().Completed) }
	notMade := []Step{LoseRequest(MakeRefund), Refund("503 outcome unknown, 1s"), resolveRefund(inFlight), markedRefund}
	rejected := []Step{
		Fault(stripetest.Unauthorized, ListRefunds), Refund("503 unavailable, 1m0s"),
		Fault(stripetest.Unauthorized, ListRefunds), resolveRefund("503 outcome unknown, 1m0s"), markedRefund,
	}
	for name, test := range map[string]struct {
		marked, then []Step
		outcome      string
		made         int
	}{
		"retried by its client":             {notMade, []Step{Retry(inFlight), later, Retry(closed)}, closed, 0},
		"continued by the completer":        {notMade, []Step{later, byCompleter}, closed, 0},
		"resolved again":                    {notMade, []Step{resolveRefund(inFlight), later, resolveRefund(closed)}, closed, 0},
		"the API key is rejected for weeks": {rejected, []Step{weeks, byCompleter}, closed, 0},
		"the API key is valid again":        {rejected, []Step{Retry(inFlight), later, Retry(closed)}, closed, 0},
		"made, and the response was lost": {
			[]Step{
				LoseResponse(MakeRefund), SecondListUnavailable, Refund("503 outcome unknown, 2s"),
				MakeUnavailable(ListRefunds), resolveRefund("503 outcome unknown, 2s"), markedRefund,
			}, []Step{weeks, byCompleter}, "201", 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := NewFixture(t, Setup{}, CreatePaid(Visa))
			f.Do(test.marked...)
			f.Do(test.then...)
			f.Do(Refund(test.outcome), expectRefundsAtProvider(test.made))
			if test.made == 0 {
				require.Equal(t, "canceled", *f.GetRefund(f.RefundKey()).FailureReason)
				require.Equal(t, "201", Outcome(f.RefundOrder("the-same-refund-again", `{}`)), "the amount is released")
			}
			CheckRefundInvariants(t, f)
		})
	}
}

// The mark is written while a run holds the refund's key. Its call that is on its way decides; a resumed run, which
// first commits that it sends one, sees the mark and sends none.
func TestMark_refundInFlight(t *testing.T) {
	t.Parallel()
	mark := func(want string) Step {
		return func(f *Fixture) { f.Do(resolveRefund(want), markedRefund) }
	}
	closed := "422 canceled"
	for name, test := range map[string]struct {
		steps []Step
		made  int
	}{
		"the first run lists": {[]Step{Before(ListRefunds, mark("409 in progress")), Refund("201"), ExpectSummary(refunded)}, 1},
		"the first run sends": {[]Step{Before(MakeRefund, mark("409 in progress")), Refund("201"), ExpectSummary(refunded)}, 1},
		"a resumed run lists": {
			[]Step{
				MakeUnavailable(ListRefunds), Refund("503 unavailable, 2s"),
				Before(ListRefunds, mark("409 in progress")), Retry("503 outcome unknown, 10m0s"),
				func(f *Fixture) { f.AgeLastRun(11 * time.Minute) }, Retry(closed), ExpectSummary(notRefunded),
			}, 0,
		},
		"the sent one arrives after the mark": {
			[]Step{
				LoseRequest(MakeRefund), Refund("503 outcome unknown, 1s"), mark("503 outcome unknown, 10m0s"),
				refundArrives, Retry("201"), ExpectSummary(refunded),
			}, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := NewFixture(t, Setup{Connections: 4}, CreatePaid(Visa))
			f.Do(test.steps...)
			f.Do(expectRefundsAtProvider(test.made))
			CheckRefundInvariants(t, f)
		})
	}
}

// refundArrives executes the call of an earlier run.
func refundArrives(f *Fixture) {
	f.Do(RefundAtProvider("amount", "1800", "metadata[account_id]", f.Account.String(), "metadata[order_id]", OrderID(f.Account, f.Key).String(),
		"metadata[refund_id]", RefundID(f.Account, f.RefundKey()).String()))
}
