package orders_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
)

func TestDecodeRefundParams_limits(t *testing.T) {
	t.Parallel()
	const (
		amount  = "/amount out_of_range: must be from 1 to 99999999"
		integer = "/amount invalid_type: must be an integer"
		reason  = "/reason invalid_value: must be one of duplicate, fraudulent, requested_by_customer"
	)
	duplicate := "duplicate"
	for body, test := range map[string]struct {
		want orders.RefundParams
		errs []string
	}{
		`{}`:                                {},
		`{"amount":1}`:                      {want: orders.RefundParams{Amount: 1}},
		`{"amount":99999999}`:               {want: orders.RefundParams{Amount: 99_999_999}},
		`{"amount":18e2}`:                   {want: orders.RefundParams{Amount: 1800}},
		`{"reason":"duplicate"}`:            {want: orders.RefundParams{Reason: &duplicate}},
		`{"amount":0}`:                      {errs: []string{amount}},
		`{"amount":-5}`:                     {errs: []string{amount}},
		`{"amount":100000000}`:              {errs: []string{amount}},
		`{"amount":10.5}`:                   {errs: []string{integer}},
		`{"amount":"100"}`:                  {errs: []string{integer}},
		`{"amount":null}`:                   {errs: []string{integer}},
		`{"reason":"regret"}`:               {errs: []string{reason}},
		`{"reason":""}`:                     {errs: []string{"/reason too_short: must be 1 to 500 characters long"}},
		`{"reason":7}`:                      {errs: []string{"/reason invalid_type: must be a string"}},
		`{"amount":1,"Amount":2}`:           {errs: []string{"/Amount unknown_member: is not a known member"}},
		`{"amount":0,"reason":"x","x":1}`:   {errs: []string{amount, "/x unknown_member: is not a known member", reason}},
		`{"amount":1,"currency":"usd"}`:     {errs: []string{"/currency unknown_member: is not a known member"}},
		`{"amount":1,"account_id":"other"}`: {errs: []string{"/account_id unknown_member: is not a known member"}},
	} {
		canonical, err := idempotency.Canonicalize([]byte(body))
		require.NoError(t, err)
		params, err := orders.DecodeRefundParams(canonical)
		if test.errs == nil {
			require.NoError(t, err, body)
			require.Equal(t, test.want, params, body)
			continue
		}
		var invalid *orders.ValidationError
		require.ErrorAs(t, err, &invalid, body)
		require.Equal(t, test.errs, errorsOf(invalid), body)
	}
}
