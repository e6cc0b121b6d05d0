package api

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
)

var currencyRows = regexp.MustCompile(`(    \| currencies \|.*\n    \| ---.*\n)(?:    \|.*\n)*`)

// withCurrencies replaces the rows of the contract's table of currencies by those of package payments.
func withCurrencies(t *testing.T, contract string) string {
	t.Helper()
	require.Len(t, currencyRows.FindAllString(contract, -1), 1, "the contract has a table of currencies")
	codes := map[payments.Currency][]string{}
	const letters = "abcdefghijklmnopqrstuvwxyz"
	for _, first := range letters {
		for _, second := range letters {
			for _, third := range letters {
				code := string([]rune{first, second, third})
				if c, known := payments.FindCurrency(code); known {
					codes[c] = append(codes[c], code)
				}
			}
		}
	}
	var rows strings.Builder
	for _, c := range slices.SortedFunc(maps.Keys(codes), func(a, b payments.Currency) int {
		return cmp.Or(a.Decimals-b.Decimals, cmp.Compare(a.Minimum, b.Minimum), cmp.Compare(a.Maximum, b.Maximum), cmp.Compare(a.Step, b.Step))
	}) {
		fmt.Fprintf(&rows, "    | %s | %d | %d | %d | %d |\n", strings.Join(codes[c], " "), c.Decimals, c.Minimum, c.Maximum, c.Step)
	}
	return currencyRows.ReplaceAllString(contract, "${1}"+rows.String())
}
