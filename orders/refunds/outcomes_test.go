package refunds_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/migrations/dbtest"
	. "example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments/stripetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dbtest.Main{M: m}) }

const (
	refunded    = "partially_refunded 1800, succeeded 1800; 1800"
	notRefunded = "paid 0, failed 1800; 0"
)

type scenarios map[string][]Step

// Each scenario refunds a part of a paid order, and runs twice if it has a retry: the client retries, or the completer
// resumes the key.
func TestRefundOutcomes(t *testing.T) {
	t.Parallel()
	for group, table := range map[string]scenarios{
		"calls":         refundCallOutcomes(),
		"doubt":         refundDoubtOutcomes(),
		"other refunds": otherRefundOutcomes(),
	} {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			shared := NewFixture(t, Setup{})
			run := func(t *testing.T, byCompleter bool, steps []Step) (retried bool) {
				f := shared.WithNewKey(t)
				f.Do(CreatePaid(Visa))
				f.ByCompleter = byCompleter
				f.Run(steps)
				return f.Retried
			}
			for name, steps := range table {
				t.Run(name, func(t *testing.T) {
					if run(t, false, steps) {
						run(t, true, steps)
					}
				})
			}
			if group != "other refunds" {
				CheckRefundInvariants(t, shared)
			}
		})
	}
}

func refundCallOutcomes() scenarios {
	table := scenarios{
		"succeeded":        {Refund("201"), ExpectSummary(refunded)},
		"list unavailable": {MakeUnavailable(ListRefunds), Refund("503 unavailable, 2s"), Retry("201"), ExpectSummary(refunded)},
		"unauthorized":     {Fault(stripetest.Unauthorized, MakeRefund), Refund("503 unavailable, 1m0s"), ExpectAlert, Retry("201"), ExpectSummary(refunded)},
	}
	for kind, want := range map[stripetest.Fault]string{
		stripetest.CloseBefore: "503 outcome unknown, 1s",
		stripetest.RateLimit:   "503 unavailable, 2s",
		stripetest.Unavailable: "503 outcome unknown, 2s",
		stripetest.KeyInUse:    "503 outcome unknown, 2s",
	} {
		table["request lost: "+string(kind)] = []Step{Fault(kind, MakeRefund), Refund(want), Retry("201"), ExpectSummary(refunded)}
	}
	for _, kind := range []stripetest.Fault{stripetest.CloseAfter, stripetest.CutBody, stripetest.BadGateway} {
		table["response lost: "+string(kind)] = []Step{Fault(kind, MakeRefund), Refund("201"), ExpectSummary(refunded)}
		table["response lost, and the list unavailable: "+string(kind)] = []Step{
			Fault(kind, MakeRefund), SecondListUnavailable, Refund("503 outcome unknown, 2s"),
			MakeUnavailable(ListRefunds), Retry("503 outcome unknown, 2s"), Retry("201"), ExpectSummary(refunded),
		}
	}
	return table
}

func dropResponse(_ *Fixture, req *http.Request, next http.RoundTripper) (*http.Response, error) {
	resp, err := next.RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
		err = io.ErrUnexpectedEOF
	}
	return nil, err
}

func refundDoubtOutcomes() scenarios {
	return scenarios{
		"stored 500 after the effect": {FaultOnce(stripetest.ErrorAfter, MakeRefund), Refund("201"), ExpectSummary(refunded)},
		"stored 500 without an effect: nothing is sent until the provider's key expires": {
			FaultOnce(stripetest.ErrorBefore, MakeRefund), Refund("503 outcome unknown, 1h0m0s"),
			Retry("503 outcome unknown, 1h0m0s"),
			ExpireProviderKeys, Retry("201"),
			ExpectCalls("list 200, refund 500, list 200 ×3, refund 200"), ExpectSummary(refunded),
		},
		"balance too low: Stripe replays the refusal, so the key is rotated": {
			Fault(stripetest.BalanceTooLow, MakeRefund), Refund("503 unavailable, 1m0s"), ExpectAlert,
			Retry("503 unavailable, 1m0s"),
			Fault(stripetest.BalanceTooLow, MakeRefund), Retry("503 unavailable, 1m0s"),
			Retry("503 unavailable, 1m0s"),
			Retry("201"),
			ExpectSummary(refunded),
		},
		"response of the refusal lost": {
			Fault(stripetest.BalanceTooLow, MakeRefund), InterceptFirst(MakeRefund, dropResponse), Refund("503 unavailable, 1m0s"), ExpectAlert,
			Fault(stripetest.BalanceTooLow, MakeRefund), Retry("503 unavailable, 1m0s"),
			Retry("503 unavailable, 1m0s"),
			Retry("201"),
			ExpectSummary(refunded),
		},
		"stored 500 before the effect": {
			FaultOnce(stripetest.ErrorLater, MakeRefund), Refund("503 outcome unknown, 1h0m0s"),
			Retry("201"),
			ExpectSummary(refunded),
		},
		"response lost, then the provider's key expires": {
			LoseResponse(MakeRefund), SecondListUnavailable, Refund("503 outcome unknown, 2s"),
			ExpireProviderKeys, Retry("201"),
			ExpectSummary(refunded),
		},
		"refused, because a duplicate of our request was made": {sendDuplicate, Refund("201"), ExpectSummary(refunded)},
	}
}

func sendDuplicate(f *Fixture) {
	f.Transport.Intercept(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if CallOf(req) != MakeRefund {
			return next.RoundTrip(req)
		}
		body, err := io.ReadAll(req.Body)
		require.NoError(f.T, err)
		form, err := url.ParseQuery(string(body))
		require.NoError(f.T, err)
		var resp *http.Response
		for _, amount := range []string{form.Get("amount"), "4300"} {
			form.Set("amount", amount)
			text := form.Encode()
			copied := req.Clone(req.Context())
			copied.Body, copied.ContentLength, copied.GetBody = io.NopCloser(strings.NewReader(text)), int64(len(text)), nil
			copied.Header.Set("Idempotency-Key", string(f.Key)+amount)
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
			RefundAtProvider(), Refund("422 charge_already_refunded"),
			ExpectSummary("paid 0, failed 1800; 4300"),
		},
		"refused, and the response of the refusal lost, which Stripe has saved under our key": {
			RefundAtProvider(), InterceptFirst(MakeRefund, dropResponse), Refund("422 charge_already_refunded"),
			ExpectSummary("paid 0, failed 1800; 4300"),
		},
		"refused, because another program refunded a part": {
			RefundAtProvider("amount", "3000"), Refund("422 payment_refused"),
			ExpectSummary("paid 0, failed 1800; 3000"),
		},
		"a refund with our id and another amount is not adopted, and no other one is sent": {
			func(f *Fixture) {
				f.Do(RefundAtProvider("amount", "5", "metadata[refund_id]", RefundID(f.Account, f.RefundKey()).String()))
			},
			Refund("503 outcome unknown, 1m0s"), ExpectAlert,
			Retry("503 outcome unknown, 1m0s"),
			ExpectSummary("paid 0, pending 1800; 5"),
		},
		"provider key used for another request": {
			Respond(MakeRefund, http.StatusBadRequest, `"type":"idempotency_error"`), Refund("503 outcome unknown, 1m0s"), ExpectAlert,
			ExpectSummary("paid 0, pending 1800; 0"),
		},
	}
}

// A refund that failed before its response arrived is never answered with 201.
func TestRefundOutcomes_failedFirst(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, CreatePaid(PendingRefund))
	f.Do(
		LoseResponse(MakeRefund), SecondListUnavailable, Refund("503 outcome unknown, 2s"),
		func(f *Fixture) { require.NoError(t, f.Stripe.Settle(f.Stripe.Refunds()[0].ID, false)) },
		Retry("422 expired_or_canceled_card"), ExpectSummary(notRefunded),
	)
	CheckRefundInvariants(t, f)
}
