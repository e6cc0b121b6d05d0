package stripetest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

func TestAuthorize(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		authorization string
		status        int
		message       string
	}{
		"test key":            {"Bearer sk_test_canary", http.StatusOK, ""},
		"restricted test key": {"Bearer rk_test_canary", http.StatusOK, ""},
		"none":                {" ", http.StatusUnauthorized, "You did not provide an API key."},
		"other scheme":        {"Digest sk_test_canary", http.StatusUnauthorized, "You did not provide an API key."},
		"no key format":       {"Bearer canary", http.StatusUnauthorized, "Invalid API Key provided: ***"},
		"live key":            {"Bearer sk_live_canary", http.StatusUnauthorized, "This is a stand-in for Stripe that moves no money."},
		"restricted live key": {"Bearer rk_live_canary", http.StatusUnauthorized, "This is a stand-in for Stripe that moves no money."},
		"publishable key":     {"Bearer pk_test_canary", http.StatusUnauthorized, "Invalid API Key provided"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, stripetest.Options{})
			r := s.send(http.MethodPost, intentsPath, visa, http.Header{
				"Authorization":   {test.authorization},
				"Content-Type":    {"application/x-www-form-urlencoded"},
				"Idempotency-Key": {"k"},
			})
			require.Equal(t, test.status, r.status, r.body)
			require.NotContains(t, r.body, "canary")
			if test.status == http.StatusOK {
				return
			}
			require.Contains(t, r.field("error.message"), test.message)
			require.Equal(t, "invalid_request_error", r.field("error.type"))
			require.Equal(t, `Bearer realm="Stripe"`, r.header.Get("WWW-Authenticate"))
			require.NotContains(t, r.header, "Request-Id")
			require.NotContains(t, r.header, "Idempotency-Key")
			require.Zero(t, s.Executions("k"))
			require.Empty(t, s.Charges())
		})
	}
}

func TestRestrict(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	s.Restrict("rk_test_canary", "payment_intents:read", "refunds:write")
	header := http.Header{"Authorization": {"Bearer rk_test_canary"}, "Content-Type": {"application/x-www-form-urlencoded"}}
	for endpoint, status := range map[string]int{
		"GET " + intentsPath:                   http.StatusOK,
		"GET " + searchPath:                    http.StatusBadRequest, // no query
		"POST " + intentsPath:                  http.StatusForbidden,
		"POST " + intentsPath + "/pi_x/cancel": http.StatusForbidden,
		"GET /v1/refunds":                      http.StatusOK,
		"POST /v1/refunds":                     http.StatusBadRequest, // no parameters
	} {
		method, path, _ := strings.Cut(endpoint, " ")
		r := s.send(method, path, "", header)
		require.Equal(t, status, r.status, endpoint)
		require.NotContains(t, r.body, "canary")
	}
	require.Equal(t, http.StatusOK, s.get(intentsPath).status, "another key")
	s.Restrict("rk_test_canary", "refunds:write")
	require.Equal(t, http.StatusForbidden, s.send(http.MethodGet, searchPath, "", header).status)
}

func TestServer_unrecognizedURL(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	for _, test := range []struct{ method, path string }{
		{http.MethodPost, "/v1/x"},
		{http.MethodDelete, "/v1/refunds/re_x"},
		{http.MethodPut, "/v1/payment_intents"},
		{http.MethodGet, "/v2/payment_intents"},
		{http.MethodPost, "/"},
	} {
		r := s.send(test.method, test.path, "", http.Header{})
		requireError(t, r, http.StatusNotFound, "", "")
		require.Contains(t, r.field("error.message"), "Unrecognized request URL ("+test.method+": "+test.path+")")
	}
}

func TestServer_version(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	require.Equal(t, "2024-06-20", s.get(intentsPath).header.Get("Stripe-Version"))
	r := s.send(http.MethodGet, intentsPath, "", http.Header{"Stripe-Version": {"2023-10-16"}})
	require.Equal(t, "2023-10-16", r.header.Get("Stripe-Version"))
}
