package orders_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments/stripetest"
)

const (
	refunded    = "partially_refunded 1800, succeeded 1800; 1800"
	notRefunded = "paid 0, failed 1800; 0"
)

// Each scenario refunds a part of a paid order, see TestOutcomes.
func TestRefundOutcomes(t *testing.T) {
	t.Parallel()
	for group, table := range map[string]scenarios{
		"calls":         refundCallOutcomes(),
		"doubt":         refundDoubtOutcomes(),
		"other refunds": otherRefundOutcomes(),
	} {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			shared := newFixture(t, options{})
			run := func(t *testing.T, byCompleter bool, steps []step) (retried bool) {
				f := shared.withNewKey(t)
				f.do(createPaid(visa))
				f.byCompleter = byCompleter
				f.run(steps)
				return f.retried
			}
			for name, steps := range table {
				t.Run(name, func(t *testing.T) {
					if run(t, false, steps) {
						run(t, true, steps)
					}
				})
			}
			if group != "other refunds" {
				checkRefundInvariants(t, shared)
			}
		})
	}
}

func refundCallOutcomes() scenarios {
	table := scenarios{
		"succeeded":        {refund("201"), expectSummary(refunded)},
		"list unavailable": {makeUnavailable(listRefunds), refund("503 unavailable, 2s"), retry("201"), expectSummary(refunded)},
		"unauthorized":     {fault(stripetest.Unauthorized, makeRefund), refund("503 unavailable, 1m0s"), expectAlert, retry("201"), expectSummary(refunded)},
	}
	for kind, want := range map[stripetest.Fault]string{
		stripetest.CloseBefore: "503 outcome unknown, 1s",
		stripetest.RateLimit:   "503 unavailable, 2s",
		stripetest.Unavailable: "503 outcome unknown, 2s",
		stripetest.KeyInUse:    "503 outcome unknown, 2s",
	} {
		table["request lost: "+string(kind)] = []step{fault(kind, makeRefund), refund(want), retry("201"), expectSummary(refunded)}
	}
	for _, kind := range []stripetest.Fault{stripetest.CloseAfter, stripetest.CutBody, stripetest.BadGateway} {
		table["response lost: "+string(kind)] = []step{fault(kind, makeRefund), refund("201"), expectSummary(refunded)}
		table["response lost, and the list unavailable: "+string(kind)] = []step{
			fault(kind, makeRefund), secondListUnavailable, refund("503 outcome unknown, 2s"),
			makeUnavailable(listRefunds), retry("503 outcome unknown, 2s"), retry("201"), expectSummary(refunded),
		}
	}
	return table
}

func dropResponse(_ *fixture, req *http.Request, next http.RoundTripper) (*http.Response, error) {
	resp, err := next.RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
		err = io.ErrUnexpectedEOF
	}
	return nil, err
}

func secondListUnavailable(f *fixture) {
	f.inject(stripetest.Rule{Fault: stripetest.Unavailable, Endpoint: listRefunds, Times: stripetest.Always, After: 1})
}

func refundDoubtOutcomes() scenarios {
	return scenarios{
		"stored 500 after the effect": {faultOnce(stripetest.ErrorAfter, makeRefund), refund("201"), expectSummary(refunded)},
		"stored 500 without an effect: nothing is sent until the provider's key expires": {
			faultOnce(stripetest.ErrorBefore, makeRefund), refund("503 outcome unknown, 1h0m0s"),
			retry("503 outcome unknown, 1h0m0s"),
			(*fixture).expireProviderKeys, retry("201"),
			expectCalls("list 200, refund 500, list 200 ×3, refund 200"), expectSummary(refunded),
		},
		"balance too low: Stripe replays the refusal, so the key is rotated": {
			fault(stripetest.BalanceTooLow, makeRefund), refund("503 unavailable, 1m0s"), expectAlert,
			retry("503 unavailable, 1m0s"),
			fault(stripetest.BalanceTooLow, makeRefund), retry("503 unavailable, 1m0s"),
			retry("503 unavailable, 1m0s"),
			retry("201"),
			expectSummary(refunded),
		},
		"response of the refusal lost": {
			fault(stripetest.BalanceTooLow, makeRefund), interceptFirst(makeRefund, dropResponse), refund("503 unavailable, 1m0s"), expectAlert,
			fault(stripetest.BalanceTooLow, makeRefund), retry("503 unavailable, 1m0s"),
			retry("503 unavailable, 1m0s"),
			retry("201"),
			expectSummary(refunded),
		},
		"stored 500 before the effect": {
			faultOnce(stripetest.ErrorLater, makeRefund), refund("503 outcome unknown, 1h0m0s"),
			retry("201"),
			expectSummary(refunded),
		},
		"response lost, then the provider's key expires": {
			loseResponse(makeRefund), secondListUnavailable, refund("503 outcome unknown, 2s"),
			(*fixture).expireProviderKeys, retry("201"),
			expectSummary(refunded),
		},
		"refused, because a duplicate of our request was made": {sendDuplicate, refund("201"), expectSummary(refunded)},
	}
}

func sendDuplicate(f *fixture) {
	f.transport.intercept(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if callOf(req) != makeRefund {
			return next.RoundTrip(req)
		}
		body, err := io.ReadAll(req.Body)
		require.NoError(f.t, err)
		form, err := url.ParseQuery(string(body))
		require.NoError(f.t, err)
		var resp *http.Response
		for _, amount := range []string{form.Get("amount"), "4300"} {
			form.Set("amount", amount)
			text := form.Encode()
			copied := req.Clone(req.Context())
			copied.Body, copied.ContentLength, copied.GetBody = io.NopCloser(strings.NewReader(text)), int64(len(text)), nil
			copied.Header.Set("Idempotency-Key", string(f.key)+amount)
			if resp != nil {
				_ = resp.Body.Close()
			}
			if resp, err = next.RoundTrip(copied); err != nil {
				return nil, err
			}
		}
		return resp, nil
	})
}

func otherRefundOutcomes() scenarios {
	return scenarios{
		"refused, because another program refunded the charge": {
			refundAtProvider(), refund("422 charge_already_refunded"),
			expectSummary("paid 0, failed 1800; 4300"),
		},
		"refused, and the response of the refusal lost, which Stripe has saved under our key": {
			refundAtProvider(), interceptFirst(makeRefund, dropResponse), refund("422 charge_already_refunded"),
			expectSummary("paid 0, failed 1800; 4300"),
		},
		"refused, because another program refunded a part": {
			refundAtProvider("amount", "3000"), refund("422 payment_refused"),
			expectSummary("paid 0, failed 1800; 3000"),
		},
		"a refund with our id and another amount is not adopted, and no other one is sent": {
			func(f *fixture) {
				f.do(refundAtProvider("amount", "5", "metadata[refund_id]", refundID(f.Account, f.refundKey()).String()))
			},
			refund("503 outcome unknown, 1m0s"), expectAlert,
			retry("503 outcome unknown, 1m0s"),
			expectSummary("paid 0, pending 1800; 5"),
		},
		"provider key used for another request": {
			useProviderKey, refund("503 outcome unknown, 1m0s"), expectAlert,
			retry("503 outcome unknown, 1m0s"),
			expectSummary("paid 0, pending 1800; 0"),
		},
	}
}

func useProviderKey(f *fixture) {
	req := httptest.NewRequest(http.MethodPost, "/v1/payment_intents?amount=100&currency=usd", nil)
	req.Header.Set("Authorization", "Bearer sk_test_another_program")
	req.Header.Set("Idempotency-Key", "orders-api-"+idempotency.KeyID(f.Account, f.refundKey()).String()+"-refund")
	recorder := httptest.NewRecorder()
	f.Stripe.ServeHTTP(recorder, req)
	require.Equal(f.t, http.StatusOK, recorder.Code, recorder.Body.String())
}

// A refund that failed before its response arrived is never answered with 201.
func TestRefundOutcomes_failedFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(pendingRefund))
	f.do(
		loseResponse(makeRefund), secondListUnavailable, refund("503 outcome unknown, 2s"),
		func(f *fixture) { require.NoError(t, f.Stripe.Settle(f.Stripe.Refunds()[0].ID, false)) },
		retry("422 expired_or_canceled_card"), expectSummary(notRefunded),
	)
	checkRefundInvariants(t, f)
}
