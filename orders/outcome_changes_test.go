package orders_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

// behindOutcomes: somebody else works on the intent.
func behindOutcomes() []outcome {
	stopped := try{faults: failing(stripetest.RateLimit, confirmEndpoint), want: "unavailable 2s"}
	const begin = "create 200, confirm 429 ×3, "
	var other string // an intent with the same payment method
	return []outcome{
		{
			name:  "cancelled before the retry",
			tries: []try{stopped, {before: cancelBehind, want: "422 payment_intent_canceled"}},
			calls: begin + "get 200",
		},
		{
			name:  "cancelled before the first confirm arrives",
			tries: []try{{around: beforehand("confirm", cancelBehind), want: "422 payment_intent_canceled"}},
			calls: "create 200, confirm 400, get 200",
		},
		{
			name:  "confirmed before the retry",
			tries: []try{stopped, {before: confirmBehind, want: "201"}},
			calls: begin + "get 200",
		},
		{
			name:  "confirmed before our confirm arrives",
			tries: []try{{around: beforehand("confirm", confirmBehind), want: "201"}},
			calls: "create 200, confirm 400, get 200",
		},
		{
			name:  "declined before the retry",
			card:  "pm_card_visa_chargeDeclinedLostCard",
			tries: []try{stopped, {before: confirmBehind, want: "402 card_declined lost_card"}},
			calls: begin + "get 200",
		},
		{
			name: "declined and then cancelled",
			card: "pm_card_visa_chargeDeclinedLostCard",
			tries: []try{stopped, {before: func(s *shop) {
				confirmBehind(s)
				cancelBehind(s)
			}, want: "402 card_declined lost_card"}},
			calls: begin + "get 200",
		},
		{
			name: "authenticated before the retry",
			card: "pm_card_authenticationRequired",
			tries: []try{stopped, {before: func(s *shop) {
				authenticateBehind(s)
				settle(true)(s)
			}, want: "201"}},
			calls: begin + "get 200",
		},
		{
			name:  "authenticated before our cancel arrives",
			card:  "pm_card_authenticationRequired",
			tries: []try{stopped, {before: authenticateBehind, around: beforehand("cancel", settle(true)), want: "201"}},
			calls: begin + "get 200, cancel 400, get 200",
		},
		{
			name: "not authenticated before our cancel arrives",
			card: "pm_card_authenticationRequired",
			tries: []try{
				stopped,
				{before: authenticateBehind, around: beforehand("cancel", settle(false)), want: "402 authentication_required authentication_required"},
			},
			calls: begin + "get 200, cancel 200",
		},
		{
			name: "the payment method is spent on another intent",
			prepare: func(s *shop) string {
				a := s.behind("/v1/payment_intents", url.Values{
					"amount": {"500"}, "currency": {"usd"}, "payment_method": {visa}, "payment_method_types[0]": {"card"},
				})
				other = "/v1/payment_intents/" + a.ID
				return a.PaymentMethod
			},
			tries: []try{stopped, {before: func(s *shop) { s.behind(other+"/confirm", nil) }, want: "422 payment_refused"}},
			calls: begin + "get 200, confirm 400, get 200, cancel 200",
		},
	}
}

func cancelBehind(s *shop) {
	s.behind(s.intentPath()+"/cancel", nil)
}

func confirmBehind(s *shop) {
	s.behind(s.intentPath()+"/confirm", url.Values{"off_session": {"true"}})
}

// authenticateBehind leaves the intent waiting for the card's owner, which our
// own confirm never does.
func authenticateBehind(s *shop) {
	s.behind(s.intentPath()+"/confirm", nil)
}

// beforehand does something when a call is about to be sent, once.
func beforehand(call string, do func(*shop)) func(*shop) around {
	return func(s *shop) around {
		done := false
		return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			if callName(req) == call && !done {
				done = true
				do(s)
			}
			return next.RoundTrip(req)
		}
	}
}

// strangeOutcomes: answers that the stand-in never gives.
func strangeOutcomes() []outcome {
	stopped := try{faults: failing(stripetest.RateLimit, confirmEndpoint), want: "unavailable 2s"}
	const begin = "create 200, confirm 429 ×3, "
	return []outcome{
		{
			name:  "another amount before the confirm, which is not sent",
			tries: []try{stopped, {around: changing("get", `"amount": 4300`, `"amount": 4400`), want: "unknown 1m0s"}, {want: "201"}},
			calls: begin + "get 200 ×2, confirm 200",
			alarm: true,
		},
		{
			name:  "another amount from the beginning",
			tries: []try{{around: changing("", `"amount": 4300`, `"amount": 4400`), want: "unavailable 1m0s"}, {want: "201"}},
			calls: "create 200 ×2, get 200, confirm 200",
			alarm: true,
		},
		{
			name: "another order's charge",
			tries: []try{
				stopped,
				{before: confirmBehind, around: changing("get", `"order_id": "`, `"order_id": "not `), want: "unknown 1m0s"},
				{want: "201"},
			},
			calls: begin + "get 200 ×2",
			alarm: true,
		},
		{
			name: "another currency in the confirm's answer, and after it",
			tries: []try{
				stopped,
				{around: afterwards("confirm", `"currency": "usd"`, `"currency": "eur"`), want: "unknown 1m0s"},
				{want: "201"},
			},
			calls: begin + "get 200, confirm 200, get 200 ×2",
			alarm: true,
		},
		{
			name:  "a status that nobody knows",
			tries: []try{stopped, {around: changing("get", `"status": "requires_confirmation"`, `"status": "resting"`), want: "unknown 1m0s"}, {want: "201"}},
			calls: begin + "get 200 ×2, confirm 200",
			alarm: true,
		},
		{
			name:  "authorised but not captured",
			tries: []try{stopped, {around: changing("get", `"status": "requires_confirmation"`, `"status": "requires_capture"`), want: "unknown 1m0s"}, {want: "201"}},
			calls: begin + "get 200 ×2, confirm 200",
			alarm: true,
		},
		{
			name:  "the payment method is gone, for no reason",
			tries: []try{stopped, {around: changing("get", `"status": "requires_confirmation"`, `"status": "requires_payment_method"`), want: "422 payment_method_missing"}},
			calls: begin + "get 200, cancel 200",
		},
		{
			name:  "a decline of the create",
			tries: []try{{around: answering("create", 402, `"type":"card_error","code":"card_declined","decline_code":"fraudulent"`), want: "402 card_declined fraudulent"}},
			calls: "create 402",
		},
		{
			name:  "a create refused for a fault of ours",
			tries: []try{{around: answering("create", 400, `"type":"invalid_request_error","code":"parameter_unknown","param":"amont"`), want: "422 parameter_unknown"}},
			calls: "create 400",
			alarm: true,
		},
		{
			name:  "a decline that leaves the intent as it was",
			tries: []try{{around: answering("confirm", 402, `"type":"card_error","code":"card_declined","decline_code":"try_again_later"`), want: "402 card_declined try_again_later"}},
			calls: "create 200, confirm 402, get 200, cancel 200",
		},
		{
			name:  "a confirm refused for a fault of ours",
			tries: []try{{around: answering("confirm", 400, `"type":"invalid_request_error","code":"parameter_unknown","param":"of_session"`), want: "422 parameter_unknown"}},
			calls: "create 200, confirm 400, get 200, cancel 200",
			alarm: true,
		},
		{
			name:  "a confirm that found another state than we find",
			tries: []try{{around: answering("confirm", 400, `"type":"invalid_request_error","code":"payment_intent_unexpected_state"`), want: "201"}},
			calls: "create 200, confirm 400, get 200 ×2, confirm-2 200",
		},
		{
			name:  "a key that was used for something else",
			tries: []try{{around: answering("confirm", 400, `"type":"idempotency_error"`), want: "unknown 1m0s"}, {want: "201"}},
			calls: "create 200, confirm 400, get 200 ×2, confirm 200",
			alarm: true,
		},
		{
			name:  "an intent that the provider does not know",
			tries: []try{stopped, {around: answering("get", 404, `"type":"invalid_request_error","code":"resource_missing","param":"intent"`), want: "unknown 1m0s"}, {want: "201"}},
			calls: begin + "get 404, get 200, confirm 200",
			alarm: true,
		},
		{
			name: "a cancel that cancels nothing",
			card: "pm_card_authenticationRequired",
			tries: []try{
				stopped,
				{before: authenticateBehind, around: changing("cancel", `"status": "canceled"`, `"status": "requires_action"`), want: "unknown 1m0s"},
				{want: "422 payment_intent_canceled"},
			},
			calls: begin + "get 200, cancel 200, get 200",
			alarm: true,
		},
	}
}

// answering answers a call in the provider's place.
func answering(call string, status int, members string) func(*shop) around {
	return func(*shop) around {
		return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			if callName(req) != call {
				return next.RoundTrip(req)
			}
			return &http.Response{
				StatusCode: status,
				Header:     http.Header{"Content-Type": {"application/json"}, "Request-Id": {"req_strange"}},
				Body:       io.NopCloser(strings.NewReader(fmt.Sprintf(`{"error":{%s,"message":"Strange."}}`, members))),
				Request:    req,
			}, nil
		}
	}
}

// changing changes what the provider answers to a call, or to all when it is
// empty.
func changing(call, from, to string) func(*shop) around {
	return func(s *shop) around {
		return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil && (call == "" || callName(req) == call) {
				change(s, resp, from, to)
			}
			return resp, err
		}
	}
}

// afterwards changes what the provider answers from a call on.
func afterwards(call, from, to string) func(*shop) around {
	return func(s *shop) around {
		begun := false
		return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			begun = begun || callName(req) == call
			if err == nil && begun {
				change(s, resp, from, to)
			}
			return resp, err
		}
	}
}

func change(s *shop, resp *http.Response, from, to string) {
	s.t.Helper()
	body, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	require.NoError(s.t, resp.Body.Close())
	require.Contains(s.t, string(body), from)
	body = bytes.ReplaceAll(body, []byte(from), []byte(to))
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.ContentLength = int64(len(body))
}
