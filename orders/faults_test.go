package orders_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

func fault(kind stripetest.Fault, calls ...string) step {
	return func(f *fixture) {
		for _, call := range calls {
			f.inject(stripetest.Rule{Fault: kind, Endpoint: call, Times: stripetest.Always})
		}
	}
}

func faultOnce(kind stripetest.Fault, calls ...string) step {
	return func(f *fixture) {
		for _, call := range calls {
			f.inject(stripetest.Rule{Fault: kind, Endpoint: call})
		}
	}
}

func (f *fixture) inject(rule stripetest.Rule) { f.faults = append(f.faults, f.Stripe.Inject(rule)) }

func loseRequest(calls ...string) step { return fault(stripetest.CloseBefore, calls...) }

func loseResponse(calls ...string) step { return fault(stripetest.CloseAfter, calls...) }

func rateLimit(calls ...string) step { return fault(stripetest.RateLimit, calls...) }

func makeUnavailable(calls ...string) step { return fault(stripetest.Unavailable, calls...) }

func before(call string, act step) step {
	return interceptFirst(call, func(f *fixture, req *http.Request, next http.RoundTripper) (*http.Response, error) {
		act(f)
		return next.RoundTrip(req)
	})
}

func after(call string, act step) step {
	return interceptFirst(call, func(f *fixture, req *http.Request, next http.RoundTripper) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		act(f)
		return resp, err
	})
}

func respond(call string, status int, members string) step {
	return interceptFirst(call, func(_ *fixture, req *http.Request, _ http.RoundTripper) (*http.Response, error) {
		return &http.Response{
			StatusCode: status,
			Header:     http.Header{"Content-Type": {"application/json"}, "Request-Id": {"req_unexpected"}},
			Body:       io.NopCloser(strings.NewReader(fmt.Sprintf(`{"error":{%s,"message":"Unexpected."}}`, members))),
			Request:    req,
		}, nil
	})
}

func interceptFirst(call string, send func(*fixture, *http.Request, http.RoundTripper) (*http.Response, error)) step {
	return func(f *fixture) {
		done := false
		f.transport.intercept(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			if callOf(req) != call || done {
				return next.RoundTrip(req)
			}
			done = true
			return send(f, req, next)
		})
	}
}

func replaceInResponses(call, from, to string) step {
	return replaceInMatching(from, to, func(got string) bool { return got == call })
}

func replaceSince(call, from, to string) step {
	return func(f *fixture) {
		started := false
		replaceInMatching(from, to, func(got string) bool {
			started = started || got == call
			return started
		})(f)
	}
}

func replaceInMatching(from, to string, matches func(call string) bool) step {
	return func(f *fixture) {
		f.transport.intercept(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err != nil || !matches(callOf(req)) {
				return resp, err
			}
			body, err := io.ReadAll(resp.Body)
			require.NoError(f.t, err)
			require.NoError(f.t, resp.Body.Close())
			require.Contains(f.t, string(body), from)
			body = bytes.ReplaceAll(body, []byte(from), []byte(to))
			resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			return resp, nil
		})
	}
}

func replaceHeader(name string) step {
	return func(f *fixture) {
		f.transport.intercept(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil {
				resp.Header.Set(name, "unreadable")
			}
			return resp, err
		})
	}
}
