package stripetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMemory_bounded(t *testing.T) {
	t.Parallel()
	var log requestLog
	var keys keyStore
	now := time.Unix(0, 0)
	for i := range 3 * maxRequests {
		now = now.Add(time.Hour)
		log.add(&Request{})
		keys.begin(keyUse{key: fmt.Sprint(i)}, now).save(&response{})
		require.LessOrEqual(t, len(log.all), 2*maxRequests)
		require.LessOrEqual(t, len(keys.byKey), 24)
		require.Len(t, keys.byAge, len(keys.byKey))
	}
}
