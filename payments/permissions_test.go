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
	const (
		readIntent, cancelIntent = "GET /v1/payment_intents/{id}", "POST /v1/payment_intents/{id}/cancel"
		listRefunds, refund      = "GET /v1/refunds", "POST /v1/refunds"
	)
	stripe := stripetest.New(stripetest.Options{})
	server := httptest.NewServer(stripe)
	t.Cleanup(server.Close)
	client := newClient(t, nil, at(server.URL), func(c *payments.Config) { c.SecretKey = "rk_test_" + canary })
	for name, test := range map[string]struct{ forbidden, missing []string }{
		"all":       {nil, nil},
		"read only": {[]string{cancelIntent, refund}, []string{"PaymentIntents: Write", "Refunds: Write"}},
		"no refund": {[]string{listRefunds, refund}, []string{"Refunds: Read", "Refunds: Write"}},
		"no intent": {[]string{readIntent, cancelIntent}, []string{"PaymentIntents: Read", "PaymentIntents: Write"}},
	} {
		for _, endpoint := range test.forbidden {
			stripe.Inject(stripetest.Rule{Fault: stripetest.Forbidden, Endpoint: endpoint})
		}
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
