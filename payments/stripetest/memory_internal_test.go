package stripetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A stand-in may run for days.
func TestMemory_bounded(t *testing.T) {
	t.Parallel()
	var log requestLog
	var keys keyStore
	log.limit = 10
	now := time.Unix(0, 0)
	for i := range 10_000 {
		now = now.Add(time.Hour)
		log.add(&Request{})
		keys.begin(keyUse{key: fmt.Sprint(i)}, now).save(&response{})
		require.LessOrEqual(t, len(log.all), 20)
		require.LessOrEqual(t, len(keys.byKey), 24)
		require.Len(t, keys.byAge, len(keys.byKey))
	}
}
