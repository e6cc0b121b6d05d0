package receipts

import (
	"strconv"
	"strings"
)

// decimals returns the number of decimal places of a currency at the payment
// provider. It differs from ISO 4217: ISK and UGX no longer have a fraction, but the
// provider charges them in hundredths
// (https://docs.stripe.com/currencies#special-cases).
func decimals(currency string) int {
	switch currency {
	case "bif", "clp", "djf", "gnf", "jpy", "kmf", "krw", "mga", "pyg", "rwf", "vnd", "vuv", "xaf", "xof", "xpf":
		return 0
	case "bhd", "jod", "kwd", "omr", "tnd":
		return 3
	default:
		return 2
	}
}

// formatAmount formats an amount in the currency's smallest unit, without a float:
// formatAmount("eur", 1999) is "19.99 EUR".
func formatAmount(currency string, amount int64) string {
	digits, negative := strings.CutPrefix(strconv.FormatInt(amount, 10), "-")
	places := decimals(currency)
	if missing := places + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	if places > 0 {
		point := len(digits) - places
		digits = digits[:point] + "." + digits[point:]
	}
	if negative {
		digits = "-" + digits
	}
	return digits + " " + strings.ToUpper(currency)
}
