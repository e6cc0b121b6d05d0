package payments_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	ordersapi "example.com/orders-api"
	"example.com/orders-api/payments"
)

func TestFindCurrency(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]payments.Currency{
		"usd": {Decimals: 2, Minimum: 50, Maximum: 99_999_999, Step: 1},
		"afn": {Decimals: 2, Minimum: 1, Maximum: 99_999_999, Step: 1},
		"idr": {Decimals: 2, Minimum: 50, Maximum: 999_999_999_999, Step: 1},
		"jpy": {Decimals: 0, Minimum: 50, Maximum: 9_999_999_999, Step: 1},
		"huf": {Decimals: 2, Minimum: 17_500, Maximum: 9_999_999_999, Step: 1},
		"kwd": {Decimals: 3, Minimum: 1, Maximum: 99_999_999, Step: 10},
		"isk": {Decimals: 2, Minimum: 1, Maximum: 99_999_999, Step: 100},
		"zmw": {Decimals: 2, Minimum: 1, Maximum: 99_999_999, Step: 1},
	} {
		found, known := payments.FindCurrency(code)
		require.True(t, known, code)
		require.Equal(t, want, found, code)
	}
	for _, code := range []string{"zzz", "USD", "", " ", "us", "d a", "usd ", "usd aed", "ed "} {
		_, known := payments.FindCurrency(code)
		require.False(t, known, "%q", code)
	}
}

// The contract states the limits of one currency beside the items; its table is generated.
func TestFindCurrency_contract(t *testing.T) {
	t.Parallel()
	usd, _ := payments.FindCurrency("usd")
	require.Contains(t, string(ordersapi.Spec), fmt.Sprintf("from %d to %d in usd", usd.Minimum, usd.Maximum))
}

func TestFormatAmount(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		currency string
		amount   int64
		want     string
	}{
		{"eur", 1999, "19.99 EUR"},
		{"usd", 2000, "20.00 USD"},
		{"usd", 7, "0.07 USD"},
		{"usd", 99, "0.99 USD"},
		{"usd", 0, "0.00 USD"},
		{"jpy", 1999, "1999 JPY"},
		{"krw", 0, "0 KRW"},
		{"kwd", 12345, "12.345 KWD"},
		{"bhd", 45, "0.045 BHD"},
		{"isk", 500, "5.00 ISK"}, // no fraction in ISO 4217
		{"ugx", 500, "5.00 UGX"},
		{"usd", -500, "-5.00 USD"},
		{"usd", -7, "-0.07 USD"},
		{"jpy", -7, "-7 JPY"},
		{"kwd", -70, "-0.070 KWD"},
		{"eur", math.MinInt64, "-92233720368547758.08 EUR"},
		{"xyz", 123, "1.23 XYZ"},                           // unknown
		{"eur", math.MaxInt64, "92233720368547758.07 EUR"}, // more than a float's 53 bits
	} {
		require.Equal(t, test.want, payments.FormatAmount(test.currency, test.amount))
	}
}
