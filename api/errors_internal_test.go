package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRetryAfterSeconds_roundsUp(t *testing.T) {
	t.Parallel()
	for wait, seconds := range map[time.Duration]int{
		-time.Second:                  1,
		0:                             1,
		time.Millisecond:              1,
		time.Second:                   1,
		time.Second + time.Nanosecond: 2,
		1500 * time.Millisecond:       2,
		30 * time.Second:              30,
		time.Hour:                     3600,
	} {
		require.Equal(t, seconds, problemUnavailable.detail("").after(wait).retryAfterSeconds(), wait)
	}
	require.Zero(t, problemNotFound.detail("").retryAfter)
}
