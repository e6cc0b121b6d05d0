package stripetest_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

func TestAuthorize(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	for authorization, message := range map[string]string{
		"Bearer sk_test_canary": "",
		"Bearer rk_test_canary": "",
		" ":                     "You did not provide an API key.",
		"Digest sk_test_canary": "You did not provide an API key.",
		"Bearer canary":         "Invalid API Key provided: ***",
		"Bearer pk_test_canary": "Invalid API Key provided: ***",
		"Bearer sk_live_canary": "This is a fake Stripe that moves no money.",
		"Bearer rk_live_canary": "This is a fake Stripe that moves no money.",
	} {
		r := s.send(http.MethodPost, intentsPath, visa, http.Header{"Authorization": {authorization}, "Idempotency-Key": {authorization}})
		require.NotContains(t, r.body, "canary")
		if message == "" {
			require.Equal(t, http.StatusOK, r.status, r.body)
			continue
		}
		requireError(t, r, http.StatusUnauthorized, "", "")
		require.Contains(t, r.field("error.message"), message)
		require.Equal(t, "invalid_request_error", r.field("error.type"))
		require.Equal(t, `Bearer realm="Stripe"`, r.header.Get("WWW-Authenticate"))
		require.NotContains(t, r.header, "Request-Id")
		require.NotContains(t, r.header, "Idempotency-Key")
		require.Zero(t, s.executions(authorization))
	}
	require.Len(t, s.Charges(), 2)
}
