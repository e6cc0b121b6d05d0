package stripetest

import (
	"fmt"
	"regexp"
	"slices"
)

var currencyPattern = regexp.MustCompile(`^[a-z]{3}$`)

type currency struct{ minimum, maximum, step int64 }

// findCurrency has the limits of usd and eur, and the widest that Stripe has for any other currency. The real ones are
// in package payments, which the fake does not import.
func findCurrency(code string) (c currency, known bool) {
	c = currency{minimum: 1, maximum: 999_999_999_999, step: 1}
	switch {
	case slices.Contains([]string{"usd", "eur"}, code):
		c.minimum, c.maximum = 50, 99_999_999
	case slices.Contains([]string{"bhd", "jod", "kwd", "omr", "tnd"}, code):
		c.step = 10
	case slices.Contains([]string{"isk", "ugx"}, code):
		c.step = 100
	}
	return c, currencyPattern.MatchString(code)
}

// formatAmount formats an amount in the currency's smallest unit.
func formatAmount(code string, amount int64) string { return fmt.Sprintf("%d %s", amount, code) }
