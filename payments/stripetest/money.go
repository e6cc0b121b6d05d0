package stripetest

import (
	"fmt"
	"net/http"
)

const maxAmount = 99_999_999

// minimumAmounts returns Stripe's minimums in the smallest unit, by supported currency.
func minimumAmounts() map[string]int64 {
	return map[string]int64{
		"aud": 50, "cad": 50, "chf": 50, "czk": 15_00, "dkk": 2_50, "eur": 50, "gbp": 30,
		"jpy": 50, "nok": 3_00, "nzd": 50, "pln": 2_00, "sek": 3_00, "sgd": 50, "usd": 50,
	}
}

func formatAmount(amount int64, currency string) string {
	if currency == "jpy" { // the only currency here without a decimal part
		return fmt.Sprintf("%d %s", amount, currency)
	}
	return fmt.Sprintf("%d.%02d %s", amount/100, amount%100, currency)
}

func (s *Server) checkAmount(amount int64, currency string) *apiError {
	minimum, known := s.minimumAmounts[currency]
	switch {
	case !known:
		return invalidRequest(http.StatusBadRequest, "", "currency",
			"Invalid currency: "+abbreviate(currency)+". The stand-in supports common ones, in lower case.")
	case amount < 1:
		return invalidRequest(http.StatusBadRequest, "parameter_invalid_integer", "amount",
			"The amount must be greater than or equal to the minimum charge amount allowed for your account and "+
				"the currency set.")
	case amount < minimum:
		return invalidRequest(http.StatusBadRequest, "amount_too_small", "amount",
			"Amount must be at least "+formatAmount(minimum, currency))
	case amount > maxAmount:
		return invalidRequest(http.StatusBadRequest, "amount_too_large", "amount",
			"Amount must be no more than "+formatAmount(maxAmount, currency))
	}
	return nil
}
