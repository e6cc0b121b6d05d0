package orders_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFailure_response(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	for name, test := range map[string]struct {
		end    step
		detail string
	}{
		"charge_window_over": {
			func(f *fixture) { f.do(old, retry("422 charge_window_over")) },
			"The order was not charged in time, and it will not be charged any more.",
		},
		"canceled": {resolve("422 canceled"), "The order was cancelled before the card was charged."},
	} {
		t.Run(name, func(t *testing.T) {
			f := f.withNewKey(t)
			f.do(stopBefore(confirm), test.end)
			require.Equal(t, map[string]string{"Content-Type": "application/problem+json"}, f.result.Response.Headers)
			require.JSONEq(t, fmt.Sprintf(`{
				"type": "/problems/payment-refused",
				"title": "The payment provider refused the request",
				"status": 422,
				"detail": %q,
				"retry": "new-key",
				"outcome": "final",
				"code": %q,
				"order_id": %q
			}`, test.detail, name, orderID(f.Account, f.key)), string(f.result.Response.Body))
		})
	}
}
