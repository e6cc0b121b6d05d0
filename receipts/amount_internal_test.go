package receipts

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFormatAmount(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		currency string
		amount   int64
		want     string
	}{
		{"two decimals", "eur", 1999, "19.99 EUR"},
		{"a round amount keeps its zeros", "usd", 2000, "20.00 USD"},
		{"less than a unit", "usd", 7, "0.07 USD"},
		{"just under a unit", "usd", 99, "0.99 USD"},
		{"zero", "usd", 0, "0.00 USD"},
		{"no decimals", "jpy", 1999, "1999 JPY"},
		{"zero without decimals", "krw", 0, "0 KRW"},
		{"three decimals", "kwd", 12345, "12.345 KWD"},
		{"less than a unit of a thousand", "bhd", 45, "0.045 BHD"},
		{"no fraction in ISO 4217, hundredths at the provider", "isk", 500, "5.00 ISK"},
		{"the same for Uganda", "ugx", 500, "5.00 UGX"},
		{"an unknown currency has two", "xyz", 123, "1.23 XYZ"},
		{"beyond a float's 53 bits", "eur", math.MaxInt64, "92233720368547758.07 EUR"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, formatAmount(test.currency, test.amount))
		})
	}
}
