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

// outOfBandOutcomes: another program changes the intent.
func outOfBandOutcomes() []outcome {
	stopped := try{faults: always(stripetest.RateLimit, confirmEndpoint), want: "unavailable 2s"}
	const begin = "create 200, confirm 429 ×3, "
	var other string // an intent with the same payment method
	return []outcome{
		{
			name:  "cancelled before the retry",
			tries: []try{stopped, {before: cancelAtProvider, want: "422 payment_intent_canceled"}},
			calls: begin + "get 200",
		},
		{
			name:  "cancelled before the first confirm arrives",
			tries: []try{{intercept: beforeCall("confirm", cancelAtProvider), want: "422 payment_intent_canceled"}},
			calls: "create 200, confirm 400, get 200",
		},
		{
			name:  "confirmed before the retry",
			tries: []try{stopped, {before: confirmAtProvider, want: "201"}},
			calls: begin + "get 200",
		},
		{
			name:  "confirmed before our confirm arrives",
			tries: []try{{intercept: beforeCall("confirm", confirmAtProvider), want: "201"}},
			calls: "create 200, confirm 400, get 200",
		},
		{
			name:  "declined before the retry",
			card:  "pm_card_visa_chargeDeclinedLostCard",
			tries: []try{stopped, {before: confirmAtProvider, want: "402 card_declined lost_card"}},
			calls: begin + "get 200, cancel 200",
		},
		{
			name: "declined and then cancelled",
			card: "pm_card_visa_chargeDeclinedLostCard",
			tries: []try{stopped, {before: func(f *fixture) {
				confirmAtProvider(f)
				cancelAtProvider(f)
			}, want: "402 card_declined lost_card"}},
			calls: begin + "get 200",
		},
		{
			name: "authenticated before the retry",
			card: "pm_card_authenticationRequired",
			tries: []try{stopped, {before: func(f *fixture) {
				confirmOnSession(f)
				authenticate(true)(f)
			}, want: "201"}},
			calls: begin + "get 200",
		},
		{
			name:       "authenticated before our cancel arrives",
			offSession: true,
			card:       "pm_card_authenticationRequired",
			tries:      []try{stopped, {before: confirmOnSession, intercept: beforeCall("cancel", authenticate(true)), want: "201"}},
			calls:      begin + "get 200, cancel 400, get 200",
		},
		{
			name:       "not authenticated before our cancel arrives",
			offSession: true,
			card:       "pm_card_authenticationRequired",
			tries: []try{
				stopped,
				{before: confirmOnSession, intercept: beforeCall("cancel", authenticate(false)), want: "402 authentication_required authentication_required"},
			},
			calls: begin + "get 200, cancel 200",
		},
		{
			name: "payment method used by another intent",
			prepare: func(f *fixture) string {
				a := f.outOfBand("/v1/payment_intents", url.Values{
					"amount": {"500"}, "currency": {"usd"}, "payment_method": {visa}, "payment_method_types[0]": {"card"},
				})
				other = "/v1/payment_intents/" + a.ID
				return a.PaymentMethod
			},
			tries: []try{stopped, {before: func(f *fixture) { f.outOfBand(other+"/confirm", nil) }, want: "422 payment_refused"}},
			calls: begin + "get 200, confirm 400, get 200, cancel 200",
		},
	}
}

func cancelAtProvider(f *fixture) {
	f.outOfBand(f.intentPath()+"/cancel", nil)
}

func confirmAtProvider(f *fixture) {
	f.outOfBand(f.intentPath()+"/confirm", url.Values{"off_session": {"true"}})
}

// confirmOnSession makes the intent require an action of the customer, which our own
// off-session confirm never does.
func confirmOnSession(f *fixture) {
	f.outOfBand(f.intentPath()+"/confirm", nil)
}

// beforeCall calls do once, before the first call of that name is sent.
func beforeCall(call string, do func(*fixture)) func(*fixture) interceptor {
	return func(f *fixture) interceptor {
		done := false
		return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			if callName(req) == call && !done {
				done = true
				do(f)
			}
			return next.RoundTrip(req)
		}
	}
}

// afterCall calls do once, before the response to the first call of that name arrives.
func afterCall(call string, do func(*fixture)) func(*fixture) interceptor {
	return func(f *fixture) interceptor {
		done := false
		return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if callName(req) == call && !done {
				done = true
				do(f)
			}
			return resp, err
		}
	}
}

// unexpectedOutcomes: responses that the fake provider does not send by itself.
func unexpectedOutcomes() []outcome {
	stopped := try{faults: always(stripetest.RateLimit, confirmEndpoint), want: "unavailable 2s"}
	const begin = "create 200, confirm 429 ×3, "
	return []outcome{
		{
			name:      "another amount, so the confirm is not sent",
			tries:     []try{stopped, {intercept: replaceInResponse("get", `"amount": 4300`, `"amount": 4400`), want: "unknown 1m0s"}, {want: "201"}},
			calls:     begin + "get 200 ×2, confirm 200",
			logsError: true,
		},
		{
			name:      "another amount from the start",
			tries:     []try{{intercept: replaceInResponse("", `"amount": 4300`, `"amount": 4400`), want: "unavailable 1m0s"}, {want: "201"}},
			calls:     "create 200 ×2, get 200, confirm 200",
			logsError: true,
		},
		{
			name: "another order's charge",
			tries: []try{
				stopped,
				{before: confirmAtProvider, intercept: replaceInResponse("get", `"order_id": "`, `"order_id": "not `), want: "unknown 1m0s"},
				{want: "201"},
			},
			calls:     begin + "get 200 ×2",
			logsError: true,
		},
		{
			name: "another currency since the confirm",
			tries: []try{
				stopped,
				{intercept: replaceInResponsesFrom("confirm", `"currency": "usd"`, `"currency": "eur"`), want: "unknown 1m0s"},
				{want: "201"},
			},
			calls:     begin + "get 200, confirm 200, get 200 ×2",
			logsError: true,
		},
		{
			name:      "unknown status",
			tries:     []try{stopped, {intercept: replaceInResponse("get", `"status": "requires_confirmation"`, `"status": "resting"`), want: "unknown 1m0s"}, {want: "201"}},
			calls:     begin + "get 200 ×2, confirm 200",
			logsError: true,
		},
		{
			name:      "authorised and not captured",
			tries:     []try{stopped, {intercept: replaceInResponse("get", `"status": "requires_confirmation"`, `"status": "requires_capture"`), want: "unknown 1m0s"}, {want: "201"}},
			calls:     begin + "get 200 ×2, confirm 200",
			logsError: true,
		},
		{
			name:  "payment method dropped without an error",
			tries: []try{stopped, {intercept: replaceInResponse("get", `"status": "requires_confirmation"`, `"status": "requires_payment_method"`), want: "422 payment_method_missing"}},
			calls: begin + "get 200, cancel 200",
		},
		{
			name:  "create declined",
			tries: []try{{intercept: respondWith("create", 402, `"type":"card_error","code":"card_declined","decline_code":"fraudulent"`), want: "402 card_declined fraudulent"}},
			calls: "create 402",
		},
		{
			name:  "create declined without a code, which a failed order requires",
			tries: []try{{intercept: respondWith("create", 402, `"type":"card_error"`), want: "402 card_declined"}},
			calls: "create 402",
		},
		{
			name:      "create refused because of a wrong parameter",
			tries:     []try{{intercept: respondWith("create", 400, `"type":"invalid_request_error","code":"parameter_unknown","param":"amont"`), want: "unavailable 1m0s"}, {want: "201"}},
			calls:     "create 400, create 200, get 200, confirm 200",
			logsError: true,
		},
		{
			name:  "decline that leaves the intent unchanged",
			tries: []try{{intercept: respondWith("confirm", 402, `"type":"card_error","code":"card_declined","decline_code":"try_again_later"`), want: "402 card_declined try_again_later"}},
			calls: "create 200, confirm 402, get 200, cancel 200",
		},
		{
			name:      "confirm refused because of a wrong parameter",
			tries:     []try{{intercept: respondWith("confirm", 400, `"type":"invalid_request_error","code":"parameter_unknown","param":"of_session"`), want: "unavailable 1m0s"}, {want: "201"}},
			calls:     "create 200, confirm 400, get 200, confirm 200",
			logsError: true,
		},
		{
			name:  "confirm refused because of the intent's state",
			tries: []try{{intercept: respondWith("confirm", 400, `"type":"invalid_request_error","code":"payment_intent_unexpected_state"`), want: "201"}},
			calls: "create 200, confirm 400, get 200 ×2, confirm-2 200",
		},
		{
			name:      "provider key used for another request",
			tries:     []try{{intercept: respondWith("confirm", 400, `"type":"idempotency_error"`), want: "unknown 1m0s"}, {want: "201"}},
			calls:     "create 200, confirm 400, get 200 ×2, confirm 200",
			logsError: true,
		},
		{
			name:      "intent unknown at the provider",
			tries:     []try{stopped, {intercept: respondWith("get", 404, `"type":"invalid_request_error","code":"resource_missing","param":"intent"`), want: "unknown 1m0s"}, {want: "201"}},
			calls:     begin + "get 404, get 200, confirm 200",
			logsError: true,
		},
		{
			name:       "cancel without an effect",
			offSession: true,
			card:       "pm_card_authenticationRequired",
			tries: []try{
				stopped,
				{before: confirmOnSession, intercept: replaceInResponse("cancel", `"status": "canceled"`, `"status": "requires_action"`), want: "unknown 1m0s"},
				{want: "422 payment_intent_canceled"},
			},
			calls:     begin + "get 200, cancel 200, get 200",
			logsError: true,
		},
	}
}

// respondWith responds to a call in place of the provider.
func respondWith(call string, status int, members string) func(*fixture) interceptor {
	return func(*fixture) interceptor {
		return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			if callName(req) != call {
				return next.RoundTrip(req)
			}
			return &http.Response{
				StatusCode: status,
				Header:     http.Header{"Content-Type": {"application/json"}, "Request-Id": {"req_unexpected"}},
				Body:       io.NopCloser(strings.NewReader(fmt.Sprintf(`{"error":{%s,"message":"Unexpected."}}`, members))),
				Request:    req,
			}, nil
		}
	}
}

// replaceInResponse changes the response to a call, or to all calls if call is "".
func replaceInResponse(call, from, to string) func(*fixture) interceptor {
	return func(f *fixture) interceptor {
		return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil && (call == "" || callName(req) == call) {
				replaceInBody(f, resp, from, to)
			}
			return resp, err
		}
	}
}

// replaceInResponsesFrom changes the responses from a call on.
func replaceInResponsesFrom(call, from, to string) func(*fixture) interceptor {
	return func(f *fixture) interceptor {
		started := false
		return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			started = started || callName(req) == call
			if err == nil && started {
				replaceInBody(f, resp, from, to)
			}
			return resp, err
		}
	}
}

func replaceInBody(f *fixture, resp *http.Response, from, to string) {
	f.t.Helper()
	body, err := io.ReadAll(resp.Body)
	require.NoError(f.t, err)
	require.NoError(f.t, resp.Body.Close())
	require.Contains(f.t, string(body), from)
	body = bytes.ReplaceAll(body, []byte(from), []byte(to))
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.ContentLength = int64(len(body))
}
