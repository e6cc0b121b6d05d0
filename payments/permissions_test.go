package payments_test

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

func TestMissingPermissions(t *testing.T) {
	t.Parallel()
	const key = "rk_test_" + canary
	stripe := stripetest.New(stripetest.Options{})
	server := httptest.NewServer(stripe)
	t.Cleanup(server.Close)
	client := newClient(t, nil, at(server.URL), func(c *payments.Config) { c.SecretKey = key })
	for name, test := range map[string]struct{ permissions, missing []string }{
		"all":       {[]string{"payment_intents:write", "refunds:write"}, nil},
		"read only": {[]string{"payment_intents:read", "refunds:read"}, []string{"PaymentIntents: Write", "Refunds: Write"}},
		"no refund": {[]string{"payment_intents:write"}, []string{"Refunds: Read", "Refunds: Write"}},
		"no intent": {[]string{"refunds:write"}, []string{"PaymentIntents: Read", "PaymentIntents: Write"}},
	} {
		stripe.Restrict(key, test.permissions...)
		missing, err := client.MissingPermissions(t.Context())
		require.NoError(t, err)
		require.Equal(t, test.missing, missing, name)
	}
	for _, request := range stripe.Requests() {
		require.False(t, request.Executed && request.Method == "POST")
	}

	revoked := newClient(t, respond(response{status: 401, body: stripeError(invalid, "", "")}))
	_, err := revoked.MissingPermissions(t.Context())
	require.Equal(t, 401, failure(t, err).HTTPStatus)
}
