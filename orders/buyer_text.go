package orders

import (
	_ "embed"
	"slices"
	"strings"
)

//go:embed buyer_text.txt
var buyerTexts string // each line is a text and the codes that have it

// buyerText is what a customer may read about a code or decline code, or "" if only a general text is
// allowed. For example, only the card's issuer may tell a cardholder that the card was reported stolen
// (https://docs.stripe.com/declines/codes, July 2026).
func buyerText(code string) string {
	for line := range strings.Lines(buyerTexts) {
		text, codes, _ := strings.Cut(line, ": ")
		if slices.Contains(strings.Fields(codes), code) {
			return text
		}
	}
	return ""
}
