package stripetest_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

func TestForm_invalid(t *testing.T) {
	t.Parallel()
	tooMany := ""
	for i := range 51 {
		tooMany += fmt.Sprintf("&metadata[k%d]=v", i)
	}
	tests := map[string]struct {
		form, code, param, message string
	}{
		"no amount":                     {"currency=usd", "parameter_missing", "amount", "Missing required param: amount."},
		"no currency":                   {"amount=100", "parameter_missing", "currency", "Missing required param: currency."},
		"unknown":                       {"amount=100&x=1", "parameter_unknown", "x", "Received unknown parameter: x"},
		"several unknown":               {"y=1&x=1", "parameter_unknown", "x", "Received unknown parameters: x, y"},
		"unknown nested":                {"amount=100&currency=usd&automatic_payment_methods[x]=1", "parameter_unknown", "automatic_payment_methods[x]", ""},
		"metadata not nested":           {"amount=100&currency=usd&metadata=x", "parameter_unknown", "metadata", ""},
		"empty":                         {"amount=100&currency=", "parameter_invalid_empty", "currency", ""},
		"twice":                         {"amount=100&amount=200&currency=usd", "", "amount", ""},
		"not encoded":                   {"amount=%zz", "", "", "The parameters are not form-encoded."},
		"not an integer":                {"amount=12.5&currency=usd", "parameter_invalid_integer", "amount", "Invalid integer: 12.5"},
		"out of range":                  {"amount=99999999999999999999&currency=usd", "parameter_invalid_integer", "amount", ""},
		"not a boolean":                 {"amount=100&currency=usd&confirm=yes", "", "confirm", "Invalid boolean: yes"},
		"no such choice":                {"amount=100&currency=usd&payment_method_types[0]=sepa_debit", "", "payment_method_types[0]", ""},
		"allow_redirects alone":         {"amount=100&currency=usd&automatic_payment_methods[allow_redirects]=never", "parameter_missing", "automatic_payment_methods[enabled]", ""},
		"off_session alone":             {"amount=100&currency=usd&off_session=true", "", "confirm", ""},
		"zero":                          {"amount=0&currency=usd", "parameter_invalid_integer", "amount", ""},
		"negative":                      {"amount=-5&currency=usd", "parameter_invalid_integer", "amount", ""},
		"usd below the minimum":         {"amount=49&currency=usd", "amount_too_small", "amount", "Amount must be at least 0.50 usd"},
		"eur below the minimum":         {"amount=49&currency=eur", "amount_too_small", "amount", "Amount must be at least 0.50 eur"},
		"gbp below the minimum":         {"amount=29&currency=gbp", "amount_too_small", "amount", "Amount must be at least 0.30 gbp"},
		"jpy below the minimum":         {"amount=49&currency=jpy", "amount_too_small", "amount", "Amount must be at least 50 jpy"},
		"nine digits":                   {"amount=100000000&currency=usd", "amount_too_large", "amount", "Amount must be no more than 999999.99 usd"},
		"no such currency":              {"amount=100&currency=xxx", "", "currency", ""},
		"upper case":                    {"amount=100&currency=USD", "", "currency", ""},
		"long description":              {"amount=100&currency=usd&description=" + strings.Repeat("é", 1001), "parameter_invalid_string", "description", ""},
		"long metadata key":             {"amount=100&currency=usd&metadata[" + strings.Repeat("k", 41) + "]=v", "", "metadata", ""},
		"long metadata value":           {"amount=100&currency=usd&metadata[k]=" + strings.Repeat("v", 501), "", "metadata[k]", ""},
		"brackets in metadata":          {"amount=100&currency=usd&metadata[a][b]=v", "", "metadata", ""},
		"too much metadata":             {"amount=100&currency=usd" + tooMany, "", "metadata", ""},
		"very long value":               {"amount=" + strings.Repeat("x", 5000) + "&currency=usd", "parameter_invalid_integer", "amount", "Invalid integer: xxxxxxxxxxxxxxxxxxxx...xxxxxxxxxx"},
		"parameter of another endpoint": {"amount=100&currency=usd&reason=duplicate", "parameter_unknown", "reason", ""},
	}
	s := start(t, stripetest.Options{})
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := s.post(intentsPath, "k", test.form)
			requireError(t, r, http.StatusBadRequest, test.code, test.param)
			require.Equal(t, "invalid_request_error", r.field("error.type"))
			require.Empty(t, r.header.Get("Stripe-Should-Retry"))
			if test.message != "" {
				require.Equal(t, test.message, r.field("error.message"))
			}
		})
	}
	require.Zero(t, s.Executions("k"))
}

func TestForm_limits(t *testing.T) {
	t.Parallel()
	form := url.Values{
		"amount":      {"99999999"},
		"currency":    {"eur"},
		"description": {strings.Repeat("é", 1000)},
	}
	for i := range 50 {
		form.Set(fmt.Sprintf("metadata[%s%02d]", strings.Repeat("k", 38), i), strings.Repeat("ü", 500))
	}
	form.Set("metadata[unset]", "")
	s := start(t, stripetest.Options{})
	r := s.post(intentsPath, "", form.Encode())
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.NotContains(t, r.body, "unset")

	require.Equal(t, http.StatusOK, s.post(intentsPath, "", "amount=50&currency=jpy").status)
	require.Equal(t, http.StatusOK, s.post(intentsPath, "", "amount=30&currency=gbp").status)
}

func TestReceive_invalidBody(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	r := s.send(http.MethodPost, intentsPath, `{"amount":100}`, http.Header{"Content-Type": {"application/json"}})
	requireError(t, r, http.StatusBadRequest, "", "")
	require.Contains(t, r.field("error.message"), "application/x-www-form-urlencoded")
	r = s.post(intentsPath, "", "amount="+strings.Repeat("1", 1<<20))
	requireError(t, r, http.StatusRequestEntityTooLarge, "", "")
}
