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

// refundOutcome is something that a provider can do to a refund.
type refundOutcome struct {
	name   string
	card   string // pm_card_visa when empty
	tries  []refundTry
	calls  string // to the provider, until the answer is final
	stands string // what is so then, see standing
	alarm  bool   // somebody is told
	others bool   // somebody else gave money back, too
}

// refundTry is the first request, or a retry.
type refundTry struct {
	before func(*sale)
	faults []stripetest.Rule // until the next try
	around around            // the same
	want   string            // as say puts it
}

// One row per thing that a provider can do, played twice: the client retries, or
// the completer goes on without one. The pool has one connection.
func TestRefundOutcomes(t *testing.T) {
	t.Parallel()
	for _, row := range slices.Concat(refundAnswers(), refundFaults(), refundHiccups(), refundsInDoubt()) {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.play(openShop(t, terms{}), (*sale).retryRefund)
			if len(row.tries) > 1 {
				row.play(openShop(t, terms{}), func(s *sale) (idempotency.Result, error) { return s.takeUpRefund(oneRefund) })
			}
		})
	}
}

const (
	oneRefund = idempotency.Key("the-key-of-one-refund")
	oneBody   = `{"amount":1800,"reason":"duplicate"}`
)

func (s *sale) retryRefund() (idempotency.Result, error) { return s.giveBack(oneRefund, oneBody) }

func (o refundOutcome) play(shop *shop, retry func(*sale) (idempotency.Result, error)) {
	t := shop.t
	card := o.card
	if card == "" {
		card = visa
	}
	s := shop.sell(card)
	ask := (*sale).retryRefund
	for i, try := range o.tries {
		if try.before != nil {
			try.before(s)
		}
		s.wire.put(try.around)
		var faults []*stripetest.Injection
		for _, rule := range try.faults {
			faults = append(faults, s.stripe.Inject(rule))
		}
		require.Equal(t, try.want, say(ask(s)), "try %d, calls: %s", i+1, s.wire.said())
		for _, fault := range faults {
			require.NotZero(t, fault.Triggered(), "try %d: the fault did not strike", i+1)
			fault.Release()
		}
		s.wire.put(nil)
		ask = retry
	}
	require.Equal(t, o.calls, s.wire.said())
	require.Equal(t, o.stands, s.standing())
	require.Equal(t, o.alarm, s.log.alarms() > 0)
	if !o.others {
		checkRefunds(t, shop)
	}

	s.wire.forget()
	last := o.tries[len(o.tries)-1].want
	if slices.Contains([]string{"unknown 1m0s", "unknown 1h0m0s"}, last) {
		return
	}
	result, err := s.retryRefund()
	require.Equal(t, last, say(result, err), "the answer stays")
	require.True(t, result.Replayed)
	require.Empty(t, s.wire.said())
}

const (
	refunded  = "partially_refunded 1800, succeeded 1800; 1800"
	untouched = "paid 0, failed 1800; 0"
)

// refundAnswers: the provider answers as it should.
func refundAnswers() []refundOutcome {
	return []refundOutcome{
		{
			name:  "at once",
			tries: []refundTry{{want: "201"}}, calls: "list 200, refund 200", stands: refunded,
		},
		{
			name: "later", card: pendingRefund,
			tries: []refundTry{{want: "201"}}, calls: "list 200, refund 200", stands: "partially_refunded 1800, pending 1800; 1800",
		},
		{
			name: "refused, because others gave the money back",
			tries: []refundTry{{
				before: func(s *sale) { s.refundElsewhere(url.Values{}) },
				want:   "422 charge_already_refunded",
			}},
			calls: "list 200, refund 400, list 200", stands: "paid 0, failed 1800; 4300", others: true,
		},
		{
			name: "refused, because others gave a part of it back",
			tries: []refundTry{{
				before: func(s *sale) { s.refundElsewhere(url.Values{"amount": {"3000"}}) },
				want:   "422 payment_refused",
			}},
			calls: "list 200, refund 400, list 200", stands: "paid 0, failed 1800; 3000", others: true,
		},
		{
			name: "one with our name and another amount is never believed, and nothing is sent beside it",
			tries: []refundTry{{
				before: func(s *sale) {
					s.refundElsewhere(url.Values{"amount": {"5"}, "metadata[refund_id]": {refundOf(s.account, oneRefund).String()}})
				},
				want: "unknown 1m0s",
			}, {want: "unknown 1m0s"}},
			calls: "list 200 ×2", stands: "paid 0, pending 1800; 5", alarm: true, others: true,
		},
	}
}

// refundFaults: the refund does not get through, or nobody hears of it.
func refundFaults() []refundOutcome {
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
			name:  "not made: " + string(fault),
			tries: []refundTry{{faults: failing(fault, refundEndpoint), want: row.want}, {want: "201"}},
			calls: row.calls, stands: refunded, alarm: fault == stripetest.Unauthorized,
		})
	}
	for fault, status := range map[stripetest.Fault]string{
		stripetest.CloseAfter: "0", stripetest.ResetAfter: "0", stripetest.CutBody: "200", stripetest.BadGateway: "502",
	} {
		rows = append(rows, refundOutcome{
			name:  "made, and nobody hears of it: " + string(fault),
			tries: []refundTry{{faults: failing(fault, refundEndpoint), want: "201"}},
			calls: fmt.Sprintf("list 200, refund %s ×3, list 200", status), stands: refunded,
		}, refundOutcome{
			name: "made, and nobody hears of it for long: " + string(fault),
			tries: []refundTry{{
				faults: append(failing(fault, refundEndpoint), unlisted(1)),
				want:   "unknown 2s",
			}, {faults: []stripetest.Rule{unlisted(0)}, want: "unknown 2s"}, {want: "201"}},
			calls: fmt.Sprintf("list 200, refund %s ×3, list 503 ×6, list 200", status), stands: refunded,
		})
	}
	return rows
}

// unlisted keeps the list of refunds away, after so many times.
func unlisted(after int) stripetest.Rule {
	return stripetest.Rule{Fault: stripetest.Unavailable, Endpoint: listRefundsEndpoint, Times: stripetest.Always, After: after}
}

// refundHiccups strike one request. Sending it again is enough.
func refundHiccups() []refundOutcome {
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
			name:  "a hiccup: " + string(fault),
			tries: []refundTry{{faults: once(fault, refundEndpoint), want: "201"}},
			calls: fmt.Sprintf("list 200, refund %d, refund 200", status), stands: refunded,
		})
	}
	return rows
}

// refundsInDoubt: a 500 that is kept, a key that is forgotten, a refusal that
// our own refund is the cause of.
func refundsInDoubt() []refundOutcome {
	return []refundOutcome{
		{
			name:  "a kept 500 after the effect",
			tries: []refundTry{{faults: once(stripetest.ErrorAfter, refundEndpoint), want: "201"}},
			calls: "list 200, refund 500, list 200", stands: refunded,
		},
		{
			name: "a kept 500 without effect: nothing is sent until the provider has forgotten it",
			tries: []refundTry{
				{faults: once(stripetest.ErrorBefore, refundEndpoint), want: "unknown 1h0m0s"},
				{want: "unknown 1h0m0s"},
				{before: func(s *sale) { s.forgetKeys() }, want: "201"},
			},
			calls: "list 200, refund 500, list 200 ×4, refund 200", stands: refunded,
		},
		{
			name: "a kept 500, and another a day later",
			tries: []refundTry{
				{faults: once(stripetest.ErrorBefore, refundEndpoint), want: "unknown 1h0m0s"},
				{
					before: func(s *sale) { s.forgetKeys() },
					faults: once(stripetest.ErrorBefore, refundEndpoint), want: "unknown 1h0m0s",
				},
				{before: func(s *sale) { s.forgetKeys() }, want: "201"},
			},
			calls: "list 200, refund 500, list 200 ×3, refund 500, list 200 ×3, refund 200", stands: refunded,
		},
		{
			name: "a kept 500 whose effect comes later",
			tries: []refundTry{
				{faults: once(stripetest.ErrorLater, refundEndpoint), want: "unknown 1h0m0s"},
				{want: "201"},
			},
			calls: "list 200, refund 500, list 200 ×3", stands: refunded,
		},
		{
			name: "lost, and the key forgotten since",
			tries: []refundTry{
				{faults: append(failing(stripetest.CloseAfter, refundEndpoint), unlisted(1)), want: "unknown 2s"},
				{before: func(s *sale) { s.forgetKeys() }, want: "201"},
			},
			calls: "list 200, refund 0 ×3, list 503 ×3, list 200", stands: refunded,
		},
		{
			name: "never sent, and a day too old",
			tries: []refundTry{
				{faults: failing(stripetest.RateLimit, refundEndpoint), want: "unavailable 2s"},
				{before: func(s *sale) { s.forgetKeys() }, want: "201"},
			},
			calls: "list 200, refund 429 ×3, list 200, refund 200", stands: refunded,
		},
		{
			name: "lost, and failed at the provider since", card: pendingRefund,
			tries: []refundTry{
				{faults: append(failing(stripetest.CloseAfter, refundEndpoint), unlisted(1)), want: "unknown 2s"},
				{before: func(s *sale) {
					require.NoError(s.t, s.stripe.Settle(s.stripe.Refunds()[0].ID, false))
				}, want: "422 expired_or_canceled_card"},
			},
			calls: "list 200, refund 0 ×3, list 503 ×3, list 200", stands: untouched,
		},
		{
			name:  "our own refund, in a copy that nobody knew of, is why the provider refuses",
			tries: []refundTry{{around: sentTwice, want: "201"}},
			calls: "list 200, refund 400, list 200", stands: refunded,
		},
		{
			name:  "the key was used for something else",
			tries: []refundTry{{before: spendKey, want: "unknown 1m0s"}, {want: "unknown 1m0s"}},
			calls: "list 200, refund 400, list 200 ×2, refund 400, list 200", stands: "paid 0, pending 1800; 0", alarm: true, others: true,
		},
		{
			name:  "the provider does not know its own list",
			tries: []refundTry{{faults: []stripetest.Rule{unlisted(0)}, want: "unavailable 2s"}, {want: "201"}},
			calls: "list 503 ×3, list 200, refund 200", stands: refunded,
		},
	}
}

// sentTwice lets a refund arrive and then, in the place of its answer, the answer
// to another one, for which too little is left.
func sentTwice(req *http.Request, next http.RoundTripper) (*http.Response, error) {
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

// spendKey uses the refund's provider key for something else.
func spendKey(s *sale) {
	req := httptest.NewRequestWithContext(s.t.Context(), http.MethodPost, "/v1/customers", nil)
	req.Header.Set("Authorization", "Bearer sk_test_other")
	req.Header.Set("Idempotency-Key", "orders-api-"+idempotency.KeyID(s.account, oneRefund).String()+"-refund")
	recorder := httptest.NewRecorder()
	s.stripe.ServeHTTP(recorder, req)
	require.Equal(s.t, http.StatusOK, recorder.Code, recorder.Body.String())
}
