package httpjson_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/httpjson"
)

func TestTimestamp_digits(t *testing.T) {
	t.Parallel()
	east := time.FixedZone("", 2*60*60)
	for want, at := range map[string]time.Time{
		"2026-11-20T09:30:12.000000Z": time.Date(2026, 11, 20, 11, 30, 12, 0, east),
		"2026-11-20T09:30:12.100000Z": time.Date(2026, 11, 20, 9, 30, 12, 100_000_000, time.UTC),
		"2026-11-20T09:30:12.000001Z": time.Date(2026, 11, 20, 9, 30, 12, 1999, time.UTC),
	} {
		text, err := json.Marshal(httpjson.Timestamp{Time: at})
		require.NoError(t, err)
		require.Equal(t, `"`+want+`"`, string(text))
		var back httpjson.Timestamp
		require.NoError(t, json.Unmarshal(text, &back))
		require.Equal(t, at.Truncate(time.Microsecond).UTC(), back.UTC())
	}
}
