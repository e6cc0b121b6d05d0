package receipts

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

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
		{"xyz", 123, "1.23 XYZ"},                           // unknown
		{"eur", math.MaxInt64, "92233720368547758.07 EUR"}, // more than a float's 53 bits
	} {
		require.Equal(t, test.want, formatAmount(test.currency, test.amount))
	}
}
