package payments_test

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
func TestKey(t *testing.T) {
	t.Parallel()
	id := uuid.MustParse("2f25d67b-20b8-8187-95ed-8befa242e93c")
	for want, got := range map[string]string{
		"orders-api-2f25d67b-20b8-8187-95ed-8befa242e93c":            payments.Key(id, "", 1),
		"orders-api-2f25d67b-20b8-8187-95ed-8befa242e93c-2":          payments.Key(id, "", 2),
		"orders-api-2f25d67b-20b8-8187-95ed-8befa242e93c-confirm":    payments.Key(id, "-confirm", 1),
		"orders-api-2f25d67b-20b8-8187-95ed-8befa242e93c-confirm-10": payments.Key(id, "-confirm", 10),
		"orders-api-2f25d67b-20b8-8187-95ed-8befa242e93c-cancel-3":   payments.Key(id, "-cancel", 3),
	} {
		require.Equal(t, want, got)
	}
}

func TestFailure(t *testing.T) {
	t.Parallel()
	require.Nil(t, payments.Failure(nil))
	known := &payments.Error{Code: "x"}
	require.Same(t, known, payments.Failure(fmt.Errorf("wrapped: %w", known)))
	other := payments.Failure(errors.New("of another kind"))
	require.True(t, other.NeedsOperator)
	require.Equal(t, payments.Unknown, other.Outcome)
}

func TestStepContext_wallTime(t *testing.T) {
	t.Parallel()
	client := payments.New(payments.Config{Timeout: time.Hour})
	step, cancel := client.StepContext(t.Context())
	defer cancel()
	send, cancel := payments.SendContext(step)
	defer cancel()
	for _, ctx := range []interface{ Deadline() (time.Time, bool) }{step, send} {
		deadline, ok := ctx.Deadline()
		require.True(t, ok)
		require.Equal(t, deadline.Round(0), deadline)
	}
	deadline, _ := send.Deadline()
	require.WithinDuration(t, time.Now().Add(36*time.Minute), deadline, time.Minute)
}
