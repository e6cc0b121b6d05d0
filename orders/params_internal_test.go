package orders

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTotal_rejected(t *testing.T) {
	t.Parallel()
	for name, items := range map[string][]Item{
		"beyond the maximum":     {{Quantity: 2, UnitAmount: 50_000_000}},
		"overflow":               {{Quantity: math.MaxInt64, UnitAmount: math.MaxInt64}},
		"sum beyond the maximum": {{Quantity: 1, UnitAmount: 99_999_999}, {Quantity: 1, UnitAmount: 1}},
		"no quantity":            {{Quantity: 0, UnitAmount: 1}},
		"no amount":              {{Quantity: 1, UnitAmount: 0}},
		"negative amount":        {{Quantity: 4, UnitAmount: math.MinInt64}},
		"two negative values":    {{Quantity: math.MinInt64, UnitAmount: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := total(items)
			require.Error(t, err)
		})
	}
}
