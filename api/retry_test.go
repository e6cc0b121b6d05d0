package api_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
)

// A damaged repetition gets retry corrected, and then the response of the first request.
// A new key would charge twice.
func TestRetry_correctedAfterLostResponse(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key, order := newKey(), orderBody()
	first := f.create(t, key, order)
	for name, got := range map[string]response{
		"header twice":   f.create(t, key, order, header("Idempotency-Key", key, key)),
		"no header":      f.create(t, key, order, header("Idempotency-Key")),
		"truncated body": f.create(t, key, order[:len(order)/2]),
		"too large":      f.create(t, key, order+strings.Repeat(" ", 64<<10)),
		"content type":   f.create(t, key, order, header("Content-Type", "text/plain")),
		"API key":        f.create(t, key, order, header("Authorization", "Bearer ok_unknown")),
	} {
		p, outcome := got.problem(t), client.OutcomeUnknown
		if name == "no header" {
			outcome = client.OutcomeNone
		}
		require.Equal(t, []any{client.RetryCorrected, outcome}, []any{p.Retry, p.Outcome}, name)
	}
	again := f.create(t, key, order)
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, string(first.body), string(again.body))
	f.requireOnePaidOrder(t)
}
