package stripetest

import (
	_ "embed"
	"strings"
)

//go:embed declinecodes.txt
var declineCodes string

// DeclineCodes returns Stripe's decline codes: those that docs.stripe.com/declines/codes has for cards and for
// local payment methods (its copy in github.com/naelrudd/stripe-docs-llm-agents at f9a00dee, read in November
// 2026), and the two of a card of the other mode, which that page does not have.
func DeclineCodes() []string { return strings.Fields(declineCodes) }
