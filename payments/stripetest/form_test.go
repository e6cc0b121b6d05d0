package stripetest_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

func TestForm_invalid(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	for form, want := range map[string]struct{ code, param string }{
		"currency=usd": {"parameter_missing", "amount"},
		"amount=100":   {"parameter_missing", "currency"},
		"y=1&x=1":      {"parameter_unknown", "x"},
		"amount=100&currency=usd&reason=duplicate":                                 {"parameter_unknown", "reason"},
		"amount=100&currency=usd&metadata=x":                                       {"parameter_unknown", "metadata"},
		"amount=100&currency=usd&metadata[a][b]=v":                                 {"parameter_unknown", "metadata[a][b]"},
		"amount=100&currency=":                                                     {"parameter_invalid_empty", "currency"},
		"amount=100&amount=200&currency=usd":                                       {"", "amount"},
		"amount=%zz":                                                               {"", ""},
		"amount=12.5&currency=usd":                                                 {"parameter_invalid_integer", "amount"},
		"amount=99999999999999999999&currency=usd":                                 {"parameter_invalid_integer", "amount"},
		"amount=100&currency=usd&confirm=yes":                                      {"", "confirm"},
		"amount=100&currency=usd&off_session=true":                                 {"", "confirm"},
		"amount=100&currency=usd&use_stripe_sdk=true":                              {"", "confirm"},
		"amount=0&currency=usd":                                                    {"parameter_invalid_integer", "amount"},
		"amount=49&currency=eur":                                                   {"amount_too_small", "amount"},
		"amount=100000000&currency=usd":                                            {"amount_too_large", "amount"},
		"amount=5124&currency=kwd":                                                 {"parameter_invalid_integer", "amount"},
		"amount=100&currency=USD":                                                  {"", "currency"},
		"amount=100&currency=usd&payment_method=pm_none":                           {"resource_missing", "payment_method"},
		"amount=100&currency=usd&automatic_payment_methods[allow_redirects]=never": {"parameter_missing", "automatic_payment_methods[enabled]"},
		"amount=2000&currency=usd&payment_method=pm_card_visa&confirm=true":        {"", "return_url"},
		"amount=100&currency=usd&payment_method_types[0]=sepa_debit&payment_method=pm_card_sepaDebit": {"", "payment_method_types[0]"},
	} {
		r := s.post(intentsPath, "k", form)
		requireError(t, r, http.StatusBadRequest, want.code, want.param)
		require.Equal(t, "invalid_request_error", r.field("error.type"))
		require.Empty(t, r.header.Get("Stripe-Should-Retry"))
	}
	require.Zero(t, s.executions("k"))
}
