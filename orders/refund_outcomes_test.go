package orders_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments/stripetest"
)

// refundOutcome is a behaviour of the provider and what it leads to.
type refundOutcome struct {
	name         string
	card         string // "" is pm_card_visa
	tries        []refundTry
	calls        string // to the provider, until the response is stored
	summary      string // at the end, see paidOrder.summary
	logsError    bool   // an operator is alerted
	otherRefunds bool   // another program made refunds, too
}

// refundTry is the first request, or a retry.
type refundTry struct {
	before    func(*paidOrder)
	faults    []stripetest.Rule // until the next try
	intercept interceptor       // the same
	want      string            // see outcomeOf
}

// Each row has one behaviour of the provider. It runs twice: the client retries, or
// the completer resumes the key. The pool has one connection.
func TestRefundOutcomes(t *testing.T) {
	t.Parallel()
	for _, row := range slices.Concat(refundResponseOutcomes(), refundFaultOutcomes(), refundTransientOutcomes(), refundDoubtOutcomes()) {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.run(newFixture(t, options{}), (*paidOrder).retryRefund)
			if len(row.tries) > 1 {
				row.run(newFixture(t, options{}), func(p *paidOrder) (idempotency.Result, error) { return p.resumeRefund(oneRefund) })
			}
		})
	}
}

const (
	oneRefund = idempotency.Key("the-key-of-one-refund")
	oneBody   = `{"amount":1800,"reason":"duplicate"}`
)

func (p *paidOrder) retryRefund() (idempotency.Result, error) {
	return p.createRefund(oneRefund, oneBody)
}

func (o refundOutcome) run(f *fixture, retry func(*paidOrder) (idempotency.Result, error)) {
	t := f.t
	card := o.card
	if card == "" {
		card = visa
	}
	p := f.createPaid(card)
	ask := (*paidOrder).retryRefund
	for i, try := range o.tries {
		if try.before != nil {
			try.before(p)
		}
		p.transport.intercept(try.intercept)
		var faults []*stripetest.Injection
		for _, rule := range try.faults {
			faults = append(faults, p.stripe.Inject(rule))
		}
		require.Equal(t, try.want, outcomeOf(ask(p)), "try %d, calls: %s", i+1, p.transport.calls())
		for _, fault := range faults {
			require.NotZero(t, fault.Triggered(), "try %d: the fault was not triggered", i+1)
			fault.Release()
		}
		p.transport.intercept(nil)
		ask = retry
	}
	require.Equal(t, o.calls, p.transport.calls())
	require.Equal(t, o.summary, p.summary())
	require.Equal(t, o.logsError, p.log.errorLines() > 0)
	if !o.otherRefunds {
		checkRefundInvariants(t, f)
	}

	p.transport.reset()
	last := o.tries[len(o.tries)-1].want
	if slices.Contains([]string{"unknown 1m0s", "unknown 1h0m0s"}, last) {
		return
	}
	result, err := p.retryRefund()
	require.Equal(t, last, outcomeOf(result, err), "the response is stored")
	require.True(t, result.Replayed)
	require.Empty(t, p.transport.calls())
}

const (
	refunded    = "partially_refunded 1800, succeeded 1800; 1800"
	notRefunded = "paid 0, failed 1800; 0"
)

// refundResponseOutcomes: the provider responds.
func refundResponseOutcomes() []refundOutcome {
	return []refundOutcome{
		{
			name:  "succeeded",
			tries: []refundTry{{want: "201"}}, calls: "list 200, refund 200", summary: refunded,
		},
		{
			name: "pending", card: pendingRefund,
			tries: []refundTry{{want: "201"}}, calls: "list 200, refund 200", summary: "partially_refunded 1800, pending 1800; 1800",
		},
		{
			name: "refused, because another program refunded the charge",
			tries: []refundTry{{
				before: func(p *paidOrder) { p.refundAtProvider(url.Values{}) },
				want:   "422 charge_already_refunded",
			}},
			calls: "list 200, refund 400, list 200", summary: "paid 0, failed 1800; 4300", otherRefunds: true,
		},
		{
			name: "refused, because another program refunded a part",
			tries: []refundTry{{
				before: func(p *paidOrder) { p.refundAtProvider(url.Values{"amount": {"3000"}}) },
				want:   "422 payment_refused",
			}},
			calls: "list 200, refund 400, list 200", summary: "paid 0, failed 1800; 3000", otherRefunds: true,
		},
		{
			name: "a refund with our id and another amount is not adopted, and no other one is sent",
			tries: []refundTry{{
				before: func(p *paidOrder) {
					p.refundAtProvider(url.Values{"amount": {"5"}, "metadata[refund_id]": {refundID(p.account, oneRefund).String()}})
				},
				want: "unknown 1m0s",
			}, {want: "unknown 1m0s"}},
			calls: "list 200 ×2", summary: "paid 0, pending 1800; 5", logsError: true, otherRefunds: true,
		},
	}
}

// refundFaultOutcomes: the request or its response is lost.
func refundFaultOutcomes() []refundOutcome {
	var rows []refundOutcome
	for fault, row := range map[stripetest.Fault]struct {
		want, calls string
	}{
		stripetest.CloseBefore:  {"unknown 1s", "list 200, refund 0 ×3, list 200 ×2, refund 200"},
		stripetest.RateLimit:    {"unavailable 2s", "list 200, refund 429 ×3, list 200, refund 200"},
		stripetest.LockTimeout:  {"unavailable 1s", "list 200, refund 429 ×3, list 200, refund 200"},
		stripetest.Unauthorized: {"unavailable 1m0s", "list 200, refund 401, list 200, refund 200"},
		stripetest.Unavailable:  {"unknown 2s", "list 200, refund 503 ×3, list 200 ×2, refund 200"},
		stripetest.KeyInUse:     {"unknown 2s", "list 200, refund 409 ×3, list 200 ×2, refund 200"},
	} {
		rows = append(rows, refundOutcome{
			name:  "request lost: " + string(fault),
			tries: []refundTry{{faults: always(fault, refundEndpoint), want: row.want}, {want: "201"}},
			calls: row.calls, summary: refunded, logsError: fault == stripetest.Unauthorized,
		})
	}
	for fault, status := range map[stripetest.Fault]string{
		stripetest.CloseAfter: "0", stripetest.ResetAfter: "0", stripetest.CutBody: "200", stripetest.BadGateway: "502",
	} {
		rows = append(rows, refundOutcome{
			name:  "response lost: " + string(fault),
			tries: []refundTry{{faults: always(fault, refundEndpoint), want: "201"}},
			calls: fmt.Sprintf("list 200, refund %s ×3, list 200", status), summary: refunded,
		}, refundOutcome{
			name: "response lost, and the list unavailable: " + string(fault),
			tries: []refundTry{{
				faults: append(always(fault, refundEndpoint), listUnavailable(1)),
				want:   "unknown 2s",
			}, {faults: []stripetest.Rule{listUnavailable(0)}, want: "unknown 2s"}, {want: "201"}},
			calls: fmt.Sprintf("list 200, refund %s ×3, list 503 ×6, list 200", status), summary: refunded,
		})
	}
	return rows
}

// listUnavailable makes the list of refunds fail, after so many requests.
func listUnavailable(after int) stripetest.Rule {
	return stripetest.Rule{Fault: stripetest.Unavailable, Endpoint: listRefundsEndpoint, Times: stripetest.Always, After: after}
}

// refundTransientOutcomes have a fault of one request, after which it is sent again.
func refundTransientOutcomes() []refundOutcome {
	var rows []refundOutcome
	for fault, status := range map[stripetest.Fault]int{
		stripetest.CloseBefore: 0,
		stripetest.RateLimit:   429,
		stripetest.LockTimeout: 429,
		stripetest.Unavailable: 503,
		stripetest.KeyInUse:    409,
		stripetest.CloseAfter:  0,
		stripetest.ResetAfter:  0,
		stripetest.BadGateway:  502,
	} {
		rows = append(rows, refundOutcome{
			name:  "transient: " + string(fault),
			tries: []refundTry{{faults: once(fault, refundEndpoint), want: "201"}},
			calls: fmt.Sprintf("list 200, refund %d, refund 200", status), summary: refunded,
		})
	}
	return rows
}

// refundDoubtOutcomes: a stored 500, an expired provider key, a refusal caused by our
// own refund.
func refundDoubtOutcomes() []refundOutcome {
	return []refundOutcome{
		{
			name:  "stored 500 after the effect",
			tries: []refundTry{{faults: once(stripetest.ErrorAfter, refundEndpoint), want: "201"}},
			calls: "list 200, refund 500, list 200", summary: refunded,
		},
		{
			name: "stored 500 without an effect: nothing is sent until the provider's key expires",
			tries: []refundTry{
				{faults: once(stripetest.ErrorBefore, refundEndpoint), want: "unknown 1h0m0s"},
				{want: "unknown 1h0m0s"},
				{before: func(p *paidOrder) { p.expireProviderKeys() }, want: "201"},
			},
			calls: "list 200, refund 500, list 200 ×4, refund 200", summary: refunded,
		},
		{
			name: "account not set up: the key is sent again, and succeeds when the provider forgets the error",
			tries: []refundTry{
				{faults: once(stripetest.AccountNotReady, refundEndpoint), want: "unavailable 1m0s"},
				{want: "unknown 1m0s"},
				{before: func(p *paidOrder) { p.expireProviderKeys() }, want: "201"},
			},
			calls:   "list 200, refund 400, list 200, refund 400, list 200 ×2, refund 200",
			summary: refunded, logsError: true,
		},
		{
			name: "stored 500, and another one a day later",
			tries: []refundTry{
				{faults: once(stripetest.ErrorBefore, refundEndpoint), want: "unknown 1h0m0s"},
				{
					before: func(p *paidOrder) { p.expireProviderKeys() },
					faults: once(stripetest.ErrorBefore, refundEndpoint), want: "unknown 1h0m0s",
				},
				{before: func(p *paidOrder) { p.expireProviderKeys() }, want: "201"},
			},
			calls: "list 200, refund 500, list 200 ×3, refund 500, list 200 ×3, refund 200", summary: refunded,
		},
		{
			name: "stored 500 before the effect",
			tries: []refundTry{
				{faults: once(stripetest.ErrorLater, refundEndpoint), want: "unknown 1h0m0s"},
				{want: "201"},
			},
			calls: "list 200, refund 500, list 200 ×3", summary: refunded,
		},
		{
			name: "response lost, then the provider's key expires",
			tries: []refundTry{
				{faults: append(always(stripetest.CloseAfter, refundEndpoint), listUnavailable(1)), want: "unknown 2s"},
				{before: func(p *paidOrder) { p.expireProviderKeys() }, want: "201"},
			},
			calls: "list 200, refund 0 ×3, list 503 ×3, list 200", summary: refunded,
		},
		{
			name: "rate limited, then the provider's key expires",
			tries: []refundTry{
				{faults: always(stripetest.RateLimit, refundEndpoint), want: "unavailable 2s"},
				{before: func(p *paidOrder) { p.expireProviderKeys() }, want: "201"},
			},
			calls: "list 200, refund 429 ×3, list 200, refund 200", summary: refunded,
		},
		{
			name: "response lost, then failed at the provider", card: pendingRefund,
			tries: []refundTry{
				{faults: append(always(stripetest.CloseAfter, refundEndpoint), listUnavailable(1)), want: "unknown 2s"},
				{before: func(p *paidOrder) {
					require.NoError(p.t, p.stripe.Settle(p.stripe.Refunds()[0].ID, false))
				}, want: "422 expired_or_canceled_card"},
			},
			calls: "list 200, refund 0 ×3, list 503 ×3, list 200", summary: notRefunded,
		},
		{
			name:  "refused, because a duplicate of our request was made",
			tries: []refundTry{{intercept: sendDuplicate, want: "201"}},
			calls: "list 200, refund 400, list 200", summary: refunded,
		},
		{
			name:  "provider key used for another request",
			tries: []refundTry{{before: useProviderKey, want: "unknown 1m0s"}, {want: "unknown 1m0s"}},
			calls: "list 200, refund 400, list 200 ×2, refund 400, list 200", summary: "paid 0, pending 1800; 0", logsError: true, otherRefunds: true,
		},
		{
			name:  "list unavailable",
			tries: []refundTry{{faults: []stripetest.Rule{listUnavailable(0)}, want: "unavailable 2s"}, {want: "201"}},
			calls: "list 503 ×3, list 200, refund 200", summary: refunded,
		},
	}
}

// sendDuplicate sends a refund and then another one that exceeds the remaining
// amount. It returns the response to the second.
func sendDuplicate(req *http.Request, next http.RoundTripper) (*http.Response, error) {
	if req.Method != http.MethodPost {
		return next.RoundTrip(req)
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, err
	}
	var resp *http.Response
	for _, amount := range []string{form.Get("amount"), "4300"} {
		form.Set("amount", amount)
		text := form.Encode()
		copied := req.Clone(req.Context())
		copied.Body, copied.ContentLength, copied.GetBody = io.NopCloser(strings.NewReader(text)), int64(len(text)), nil
		copied.Header.Set("Idempotency-Key", "the-refund-of-"+amount)
		if resp != nil {
			_ = resp.Body.Close()
		}
		if resp, err = next.RoundTrip(copied); err != nil {
			return nil, err
		}
	}
	return resp, nil
}

// useProviderKey uses the refund's provider key for another request.
func useProviderKey(p *paidOrder) {
	req := httptest.NewRequestWithContext(p.t.Context(), http.MethodPost, "/v1/payment_intents?amount=100&currency=usd", nil)
	req.Header.Set("Authorization", "Bearer sk_test_other")
	req.Header.Set("Idempotency-Key", "orders-api-"+idempotency.KeyID(p.account, oneRefund).String()+"-refund")
	recorder := httptest.NewRecorder()
	p.stripe.ServeHTTP(recorder, req)
	require.Equal(p.t, http.StatusOK, recorder.Code, recorder.Body.String())
}
