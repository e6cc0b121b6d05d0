package orders

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Without a monotonic reading, the deadlines also pass while a machine is suspended.
func TestStepContext_wallTime(t *testing.T) {
	t.Parallel()
	step, cancel := (&Service{Config: Config{StepTimeout: time.Hour}}).stepContext(t.Context())
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
