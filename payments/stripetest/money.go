package stripetest

import (
	"fmt"
	"net/http"
)

// maxAmount is Stripe's limit: eight digits.
const maxAmount = 99_999_999

// A currency has what is needed to validate and format amounts.
type currency struct {
	symbol      string
	minimum     int64 // in the smallest unit
	zeroDecimal bool
}

// knownCurrencies has the minimum amounts that Stripe documents for common currencies.
// Other currencies are rejected.
func knownCurrencies() map[string]currency {
	return map[string]currency{
		"aud": {symbol: "A$", minimum: 50},
		"cad": {symbol: "CA$", minimum: 50},
		"chf": {symbol: "CHF ", minimum: 50},
		"czk": {symbol: "Kč", minimum: 15_00},
		"dkk": {symbol: "kr.", minimum: 2_50},
		"eur": {symbol: "€", minimum: 50},
		"gbp": {symbol: "£", minimum: 30},
		"jpy": {symbol: "¥", minimum: 50, zeroDecimal: true},
		"nok": {symbol: "kr.", minimum: 3_00},
		"nzd": {symbol: "NZ$", minimum: 50},
		"pln": {symbol: "zł", minimum: 2_00},
		"sek": {symbol: "kr.", minimum: 3_00},
		"sgd": {symbol: "S$", minimum: 50},
		"usd": {symbol: "$", minimum: 50},
	}
}

func (c currency) format(amount int64) string {
	if c.zeroDecimal {
		return fmt.Sprintf("%s%d", c.symbol, amount)
	}
	return fmt.Sprintf("%s%d.%02d", c.symbol, amount/100, amount%100)
}

// checkAmount applies Stripe's limits to an amount.
func (s *Server) checkAmount(amount int64, code string) *apiError {
	unit, known := s.currencies[code]
	switch {
	case !known:
		return invalidRequest(http.StatusBadRequest, "", "currency",
			"Invalid currency: "+abbreviate(code)+". The stand-in supports common ones, in lower case.")
	case amount < 1:
		return invalidRequest(http.StatusBadRequest, "parameter_invalid_integer", "amount",
			"The amount must be greater than or equal to the minimum charge amount allowed for your account and "+
				"the currency set.")
	case amount < unit.minimum:
		return invalidRequest(http.StatusBadRequest, "amount_too_small", "amount",
			fmt.Sprintf("Amount must be at least %s %s", unit.format(unit.minimum), code))
	case amount > maxAmount:
		return invalidRequest(http.StatusBadRequest, "amount_too_large", "amount",
			fmt.Sprintf("Amount must be no more than %s", unit.format(maxAmount)))
	}
	return nil
}
