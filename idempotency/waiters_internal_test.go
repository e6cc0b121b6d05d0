package idempotency

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A waiter reads four times per second for two seconds, and then each second.
func TestWaiters_reads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		ctx, cancel := context.WithTimeout(t.Context(), 29500*time.Millisecond)
		defer cancel()
		require.True(t, newWaiters(1).wait(ctx, func() bool {
			reads++
			return false
		}))
		require.Equal(t, 8+27, reads)
	})
}
