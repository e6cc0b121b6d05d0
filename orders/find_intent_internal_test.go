package orders

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
)

// An unknown status may mean a payment in process.
func TestPrecedence_unknownStatus(t *testing.T) {
	t.Parallel()
	require.Greater(t, precedence("resting"), precedence(payments.StatusCanceled))
	require.Less(t, precedence("resting"), precedence(payments.StatusSucceeded))
}
