package orders

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
)

// These keys must never change (R5).
func TestProviderKey(t *testing.T) {
	t.Parallel()
	id := uuid.MustParse("2f25d67b-20b8-8187-95ed-8befa242e93c")
	for want, got := range map[string]string{
		"orders-api-2f25d67b-20b8-8187-95ed-8befa242e93c":            providerKey(id, "", 1),
		"orders-api-2f25d67b-20b8-8187-95ed-8befa242e93c-2":          providerKey(id, "", 2),
		"orders-api-2f25d67b-20b8-8187-95ed-8befa242e93c-confirm":    providerKey(id, "-confirm", 1),
		"orders-api-2f25d67b-20b8-8187-95ed-8befa242e93c-confirm-10": providerKey(id, "-confirm", 10),
		"orders-api-2f25d67b-20b8-8187-95ed-8befa242e93c-cancel-3":   providerKey(id, "-cancel", 3),
	} {
		require.Equal(t, want, got)
	}
}

func TestAsPaymentError(t *testing.T) {
	t.Parallel()
	require.Nil(t, asPaymentError(nil))
	known := &payments.Error{Code: "x"}
	require.Same(t, known, asPaymentError(fmt.Errorf("wrapped: %w", known)))
	other := asPaymentError(errors.New("of another kind"))
	require.True(t, other.NeedsOperator)
	require.Equal(t, payments.Unknown, other.Outcome)
}

// An unknown status may mean a payment in process.
func TestPrecedence_unknownStatus(t *testing.T) {
	t.Parallel()
	require.Greater(t, precedence("resting"), precedence(payments.StatusCanceled))
	require.Less(t, precedence("resting"), precedence(payments.StatusSucceeded))
}

func TestStepContext_wallTime(t *testing.T) {
	t.Parallel()
	step, cancel := (&Service{Config{StepTimeout: time.Hour}}).stepContext(t.Context())
	defer cancel()
	send, cancel := sendContext(step)
	defer cancel()
	for _, ctx := range []interface{ Deadline() (time.Time, bool) }{step, send} {
		deadline, ok := ctx.Deadline()
		require.True(t, ok)
		require.Equal(t, deadline.Round(0), deadline)
	}
	deadline, _ := send.Deadline()
	require.WithinDuration(t, time.Now().Add(36*time.Minute), deadline, time.Minute)
}
