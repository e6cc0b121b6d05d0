package orders_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/orders/refunds"
)

func TestDecodeRefundRequest_limits(t *testing.T) {
	t.Parallel()
	const (
		amount  = "/amount out_of_range: must be from 1 to 999999999999"
		integer = "/amount invalid_type: must be an integer"
		reason  = "/reason invalid_value: must be one of duplicate, fraudulent, requested_by_customer"
	)
	duplicate := "duplicate"
	for body, test := range map[string]struct {
		want refunds.Request
		errs []string
	}{
		`{}`:                              {},
		`{"amount":999999999999}`:         {want: refunds.Request{Amount: 999_999_999_999}},
		`{"reason":"duplicate"}`:          {want: refunds.Request{Reason: &duplicate}},
		`{"amount":0}`:                    {errs: []string{amount}},
		`{"amount":1000000000000}`:        {errs: []string{amount}},
		`{"amount":10.5}`:                 {errs: []string{integer}},
		`{"reason":"regret"}`:             {errs: []string{reason}},
		`{"reason":""}`:                   {errs: []string{"/reason too_short: must be 1 to 500 characters long"}},
		`{"amount":0,"reason":"x","x":1}`: {errs: []string{amount, reason, "/x unknown_member: is not a known member"}},
	} {
		canonical, err := idempotency.Canonicalize([]byte(body))
		require.NoError(t, err)
		params, err := refunds.DecodeRequest(canonical)
		if test.errs == nil {
			require.NoError(t, err, body)
			require.Equal(t, test.want, params, body)
			continue
		}
		var invalid *httpjson.InvalidError
		require.ErrorAs(t, err, &invalid, body)
		require.Equal(t, test.errs, errorsOf(invalid), body)
	}
}
