package orders_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments/stripetest"
)

// Stripe would refuse an amount that is no multiple of the currency's step, which would use up the key.
func TestRefund_threeDecimals(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	order := request(t, f.Account, f.key, visa)
	order.Params = fmt.Appendf(nil, `{"currency":"kwd","email":"ada@example.com","items":%s,"payment_method":%q}`,
		`[{"quantity":1,"sku":"TEA","unit_amount":5325},{"quantity":2,"sku":"GIFT","unit_amount":0},{"quantity":1,"sku":"SAVE","unit_amount":-205}]`, visa)
	require.Equal(t, "201", outcomeOf(f.sendRequest(order)))
	require.Equal(t, map[string]int64{"kwd": 5120}, f.Stripe.MoneyMoved())
	require.Equal(t, "422 invalid", outcomeOf(f.refund(oneRefund, `{"amount":124}`)))
	require.Equal(t, "201", outcomeOf(f.refund(oneRefund, `{"amount":120}`)), "the key was not used")
	require.Equal(t, "201", outcomeOf(f.refund("all-that-is-left-of-it", `{}`)))
}

// The request derives from the key and the stored parameters (R4, R5).
func TestRefund_request(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(visa), refund("201"))
	key := idempotency.KeyID(f.Account, f.refundKey())
	sent := f.Stripe.Requests()[len(f.Stripe.Requests())-1]
	require.Equal(t, "orders-api-"+key.String()+"-refund", sent.Key)
	form, err := url.ParseQuery(string(sent.Body))
	require.NoError(t, err)
	require.Equal(t, url.Values{
		"payment_intent":               {f.intentID()},
		"amount":                       {"1800"},
		"reason":                       {"duplicate"},
		"metadata[account_id]":         {f.Account.String()},
		"metadata[order_id]":           {orderID(f.Account, f.key).String()},
		"metadata[refund_id]":          {refundID(f.Account, f.refundKey()).String()},
		"metadata[idempotency_key_id]": {key.String()},
	}, form)
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
		"parts":                     {`{"amount":1000}`, 4, nil, 4000, []string{"422 refund-exceeds-remaining, and the key is unused, 300 remain"}},
		"whole amount":              {`{}`, 1, nil, 4300, []string{"422 order-not-refundable, and the key is unused"}},
		"parts, and responses lost": {`{"amount":1000}`, 4, []stripetest.Rule{{Fault: stripetest.CloseAfter, Endpoint: makeRefund, Times: 7}}, 4000, []string{"422 refund-exceeds-remaining, and the key is unused, 300 remain"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const racers = 10
			f := newFixture(t, options{connections: 8, concurrent: true}, createPaid(visa))
			for _, rule := range test.faults {
				f.Stripe.Inject(rule)
			}
			var all sync.WaitGroup
			outcomes := make([]string, 2*racers)
			for i := range outcomes {
				req := refundRequest(t, f.Account, orderID(f.Account, f.key), idempotency.Key(fmt.Sprintf("one-of-ten-refunds-%d", i/2)), test.body)
				all.Go(func() { outcomes[i] = outcomeOf(f.Refund(t.Context(), req)) })
			}
			all.Wait()
			for i, outcome := range outcomes {
				require.Contains(t, append(test.rejected, "201", "409 in progress"), outcome, "racer %d", i)
			}
			made := 0
			for i := range racers {
				outcome := outcomeOf(f.refund(idempotency.Key(fmt.Sprintf("one-of-ten-refunds-%d", i)), test.body))
				require.Contains(t, append(test.rejected, "201"), outcome)
				if outcome == "201" {
					made++
				}
			}
			require.Equal(t, test.made, made)
			require.Len(t, f.Stripe.Refunds(), made)
			require.Equal(t, test.refunded, f.Stripe.Charges()[0].Refunded)
			checkRefundInvariants(t, f)
		})
	}
}

func loseRefunds(f *fixture) {
	f.exec("DELETE FROM refunds")
	f.exec("DELETE FROM idempotency_keys WHERE operation = 'create_refund'")
	f.exec("DELETE FROM audit_records WHERE resource_type = 'refund'")
	f.exec("UPDATE orders SET amount_refunded = 0, status = 'paid'")
}

// The client's retry finds a lost refund at the provider, at any age (R5, derived ids).
func TestRefund_rowsLostInRestore(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(visa), refund("201"), loseRefunds)
	f.Stripe.Advance(48 * time.Hour)
	f.do(refund("201"), expectSummary(refunded))
	require.Len(t, f.Stripe.Refunds(), 1)
	checkRefundInvariants(t, f)
}

// Of two lost refunds, that of the rest is retried first, when the rest is larger than it was.
func TestRefund_lostRest(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(visa))
	const theRest = idempotency.Key("the-key-of-the-rest")
	require.Equal(t, "201", outcomeOf(f.refund(oneRefund, oneBody)))
	require.Equal(t, "201", outcomeOf(f.refund(theRest, `{}`)))
	loseRefunds(f)
	require.Equal(t, "201", outcomeOf(f.refund(theRest, `{}`)))
	require.EqualValues(t, 2500, f.getRefund(theRest).Amount)
	require.Equal(t, "201", outcomeOf(f.refund(oneRefund, oneBody)))
	require.Equal(t, "refunded 4300, succeeded 1800, succeeded 2500; 4300", f.summary())
	checkRefundInvariants(t, f)
}

func ageLastSend(age time.Duration) step {
	return func(f *fixture) { f.exec("UPDATE refunds SET provider_sent_at = provider_sent_at - $1::interval", age) }
}

func resolveRefund(want string) step {
	return func(f *fixture) {
		f.t.Helper()
		f.expect(want, func(f *fixture) (idempotency.Result, error) { return f.resolveKey(f.refundKey()) })
	}
}

// Unless Stripe has saved a refusal under our key, an earlier call with this key may still be executed
// after the cause of the refusal has gone. So the refusal is not final until no such call can arrive.
func TestRefund_refusedWhileInFlight(t *testing.T) {
	t.Parallel()
	disputed := respond(makeRefund, http.StatusBadRequest, `"type":"invalid_request_error","code":"charge_disputed"`)
	for name, send := range map[string]func(*fixture, interceptor){
		"by an earlier run": func(f *fixture, delay interceptor) {
			f.inject(stripetest.Rule{Fault: stripetest.CloseBefore, Endpoint: makeRefund, After: 1, Times: stripetest.Always})
			f.transport.intercept(delay)
			f.do(refund("503 outcome unknown, 1s"), disputed, retry("503 outcome unknown, 10m0s"))
		},
		"by an earlier attempt": func(f *fixture, delay interceptor) {
			f.do(disputed)
			f.transport.intercept(inOrder(makeRefund, delay, f.transport.interceptor))
			f.do(refund("503 outcome unknown, 10m0s"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{}, createPaid(visa))
			delayed := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldArrival, Endpoint: makeRefund})
			send(f, inOrder(makeRefund, func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
				return hangUp(req, next, delayed)
			}))
			f.do(expectSummary("paid 0, pending 1800; 0"))
			delayed.Release()
			require.Eventually(t, func() bool { return len(f.Stripe.Refunds()) == 1 }, time.Minute, time.Millisecond)
			f.do(retry("201"), expectSummary(refunded))
			checkRefundInvariants(t, f)
		})
	}

	f := newFixture(t, options{}, createPaid(visa))
	f.do(
		loseRequest(makeRefund), refund("503 outcome unknown, 1s"), ageLastSend(9*time.Minute),
		disputed, retry("503 outcome unknown, 10m0s"), ageLastSend(2*time.Minute),
		disputed, retry("422 charge_disputed"), expectSummary(notRefunded),
	)
	checkRefundInvariants(t, f)
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

func inOrder(call string, each ...interceptor) interceptor {
	return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if callOf(req) != call || len(each) == 0 {
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
	f := newFixture(t, options{}, createPaid(visa))
	dispute, err := f.Stripe.Dispute(f.intentID(), 700, "fraudulent", "needs_response")
	require.NoError(t, err)
	f.do(refund("422 charge_disputed"))
	require.Contains(t, string(f.result.Response.Body), `"retry":"new-key"`)
	require.NoError(t, f.Stripe.UpdateDispute(dispute, "won"))
	f.do(retry("422 charge_disputed"))
	require.Equal(t, "201", outcomeOf(f.refund("after-the-dispute", oneBody)))
	checkRefundInvariants(t, f)
}

func retryUnsent(f *fixture) {
	f.do(makeUnavailable(listRefunds), retry("503 outcome unknown, 2s"))
}

func TestResolve_refund(t *testing.T) {
	t.Parallel()
	idle := func(f *fixture) { f.ageLastRun(11 * time.Minute) }
	const closed = "422 canceled"
	for name, test := range map[string]struct {
		steps   []step
		outcome string
		summary string
	}{
		"made, response lost": {[]step{loseResponse(makeRefund), secondListUnavailable, refund("503 outcome unknown, 2s")}, "201", refunded},
		"the list of another account is empty": {
			[]step{loseResponse(makeRefund), secondListUnavailable, refund("503 outcome unknown, 2s"), idle, anotherAccount},
			"503 outcome unknown, 1m0s", "paid 0, pending 1800; 1800",
		},
		"not made, may be in flight": {
			[]step{loseRequest(makeRefund), refund("503 outcome unknown, 1s")},
			"503 outcome unknown, 10m0s", "paid 0, pending 1800; 0",
		},
		"not made, and a later call may be in flight": {
			[]step{
				loseRequest(makeRefund), refund("503 outcome unknown, 1s"), ageLastSend(11 * time.Minute),
				loseRequest(makeRefund), retry("503 outcome unknown, 1s"),
			}, "503 outcome unknown, 10m0s", "paid 0, pending 1800; 0",
		},
		"not made, and only operators have run since": {
			[]step{
				loseRequest(makeRefund), refund("503 outcome unknown, 1s"), ageLastSend(9 * time.Minute),
				retryUnsent, resolveRefund("503 outcome unknown, 10m0s"), ageLastSend(2 * time.Minute),
			}, closed, notRefunded,
		},
		"refused again and again": {
			[]step{
				fault(stripetest.BalanceTooLow, makeRefund), refund("503 unavailable, 1m0s"), retry("503 unavailable, 1m0s"),
				fault(stripetest.BalanceTooLow, makeRefund), retry("503 unavailable, 1m0s"), retry("503 unavailable, 1m0s"),
			}, closed, notRefunded,
		},
		"not made, and refused at a later call": {
			[]step{
				loseRequest(makeRefund), refund("503 outcome unknown, 1s"), ageLastSend(9 * time.Minute),
				rateLimit(makeRefund), retry("503 outcome unknown, 2s"), ageLastSend(2 * time.Minute),
			}, closed, notRefunded,
		},
		"not made, nothing in flight": {[]step{loseRequest(makeRefund), refund("503 outcome unknown, 1s"), idle}, closed, notRefunded},
		"stored 500, and the effect may follow": {
			[]step{faultOnce(stripetest.ErrorBefore, makeRefund), refund("503 outcome unknown, 1h0m0s"), idle},
			"503 outcome unknown, 1h0m0s", "paid 0, pending 1800; 0",
		},
		"stored 500, a day later": {
			[]step{faultOnce(stripetest.ErrorBefore, makeRefund), refund("503 outcome unknown, 1h0m0s"), idle, (*fixture).expireProviderKeys},
			closed, notRefunded,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{}, createPaid(visa))
			f.do(test.steps...)
			require.Equal(t, test.outcome, outcomeOf(f.resolveKey(f.refundKey())))
			f.do(expectSummary(test.summary))
			switch test.outcome {
			case "503 outcome unknown, 10m0s":
				require.Equal(t, test.outcome, outcomeOf(f.resolveKey(f.refundKey())), "the first resolve was a run, too")
			case closed:
				f.do(retry(closed))
				require.Equal(t, "201", outcomeOf(f.refund("the-same-refund-again", `{}`)), "the amount is released")
				checkRefundInvariants(t, f)
			}
		})
	}
}
