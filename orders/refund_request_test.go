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
	duplicate := "duplicate"
	for body, test := range map[string]struct {
		want refunds.Request
		errs []string
	}{
		`{}`:                              {},
		`{"amount":999999999999}`:         {want: refunds.Request{Amount: 999_999_999_999}},
		`{"reason":"duplicate"}`:          {want: refunds.Request{Reason: &duplicate}},
		`{"amount":0}`:                    {errs: []string{"/amount out_of_range"}},
		`{"amount":1000000000000}`:        {errs: []string{"/amount out_of_range"}},
		`{"amount":10.5}`:                 {errs: []string{"/amount invalid_type"}},
		`{"reason":"regret"}`:             {errs: []string{"/reason invalid_value"}},
		`{"reason":""}`:                   {errs: []string{"/reason too_short"}},
		`{"amount":0,"reason":"x","x":1}`: {errs: []string{"/amount out_of_range", "/reason invalid_value", "/x unknown_member"}},
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
		var errs []string
		for _, f := range invalid.Fields {
			errs = append(errs, f.Pointer+" "+f.Code)
		}
		require.Equal(t, test.errs, errs, body)
	}
}
