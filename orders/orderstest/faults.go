package orderstest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

// Fault injects a fault of calls until the next request has ended.
func Fault(kind stripetest.Fault, calls ...string) Step {
	return func(f *Fixture) {
		for _, call := range calls {
			f.Inject(stripetest.Rule{Fault: kind, Endpoint: call, Times: stripetest.Always})
		}
	}
}

// FaultOnce injects a fault of the next call.
func FaultOnce(kind stripetest.Fault, calls ...string) Step {
	return func(f *Fixture) {
		for _, call := range calls {
			f.Inject(stripetest.Rule{Fault: kind, Endpoint: call})
		}
	}
}

// Inject injects a fault until the next request has ended.
func (f *Fixture) Inject(rule stripetest.Rule) { f.Faults = append(f.Faults, f.Stripe.Inject(rule)) }

// LoseRequest loses calls before their effect.
func LoseRequest(calls ...string) Step { return Fault(stripetest.CloseBefore, calls...) }

// LoseResponse loses calls after their effect.
func LoseResponse(calls ...string) Step { return Fault(stripetest.CloseAfter, calls...) }

// RateLimit rejects calls.
func RateLimit(calls ...string) Step { return Fault(stripetest.RateLimit, calls...) }

// MakeUnavailable answers calls with 503.
func MakeUnavailable(calls ...string) Step { return Fault(stripetest.Unavailable, calls...) }

// AnotherAccount sends all calls to another account of the provider until the next outcome, as a
// wrong API key does.
func AnotherAccount(f *Fixture) {
	f.T.Helper()
	server := httptest.NewServer(stripetest.New(stripetest.Options{}))
	f.T.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	require.NoError(f.T, err)
	f.Transport.Intercept(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		req = req.Clone(req.Context())
		req.URL.Host, req.Host = at.Host, at.Host
		return next.RoundTrip(req)
	})
}

// Before acts before the next such call arrives.
func Before(call string, act Step) Step {
	return InterceptFirst(call, func(f *Fixture, req *http.Request, next http.RoundTripper) (*http.Response, error) {
		act(f)
		return next.RoundTrip(req)
	})
}

// After acts when the next such call has ended.
func After(call string, act Step) Step {
	return InterceptFirst(call, func(f *Fixture, req *http.Request, next http.RoundTripper) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		act(f)
		return resp, err
	})
}

// Respond answers the next such call with an error that has these members.
func Respond(call string, status int, members string) Step {
	return InterceptFirst(call, func(_ *Fixture, req *http.Request, _ http.RoundTripper) (*http.Response, error) {
		return ErrorResponse(req, status, members), nil
	})
}

// ErrorResponse is one of the provider.
func ErrorResponse(req *http.Request, status int, members string) *http.Response {
	return &http.Response{
		StatusCode: status,
		Header:     http.Header{"Content-Type": {"application/json"}, "Request-Id": {"req_unexpected"}},
		Body:       io.NopCloser(strings.NewReader(fmt.Sprintf(`{"error":{%s,"message":"Unexpected."}}`, members))),
		Request:    req,
	}
}

// InterceptFirst sends the next such call in another way.
func InterceptFirst(call string, send func(*Fixture, *http.Request, http.RoundTripper) (*http.Response, error)) Step {
	return func(f *Fixture) {
		done := false
		f.Transport.Intercept(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			if CallOf(req) != call || done {
				return next.RoundTrip(req)
			}
			done = true
			return send(f, req, next)
		})
	}
}

// EditResponses changes the responses of calls.
func EditResponses(edit func(body []byte) []byte, calls ...string) Step {
	return func(f *Fixture) {
		f.Transport.Intercept(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err != nil || !slices.Contains(calls, CallOf(req)) {
				return resp, err
			}
			body, err := io.ReadAll(resp.Body)
			require.NoError(f.T, err)
			require.NoError(f.T, resp.Body.Close())
			body = edit(body)
			resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			return resp, nil
		})
	}
}

// ReplaceInResponses replaces a text, which the responses of calls must have.
func ReplaceInResponses(from, to string, calls ...string) Step {
	return func(f *Fixture) {
		EditResponses(func(body []byte) []byte {
			require.Contains(f.T, string(body), from)
			return bytes.ReplaceAll(body, []byte(from), []byte(to))
		}, calls...)(f)
	}
}
