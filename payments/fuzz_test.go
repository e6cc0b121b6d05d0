package payments_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// FuzzOperatorMessage checks that no text around a secret brings it into an error, a log
// or a row.
func FuzzOperatorMessage(f *testing.F) {
	for _, around := range []string{"", " ", "'", "\n", "\x00", "x", "sk_", "=", "\u00a0", "\u2028", "é", "\xff"} {
		f.Add(around, around)
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		if strings.Contains(before+after, canary) {
			return
		}
		for _, secret := range []string{
			secretKey, "rk_live_" + canary, "ek_test_" + canary, webhookSecret, clientSecret, "s\x00k_test_" + canary, canary + "@example.com",
		} {
			body, err := json.Marshal(map[string]any{"error": map[string]any{"type": "invalid_request_error", "message": before + secret + after}})
			require.NoError(t, err)
			text := confirmFailure(t, newClient(t, respond(response{status: 400, body: string(body)}))).Error() // confirmFailure looks for the canary
			require.True(t, utf8.ValidString(text))
			require.NotContains(t, text, "\x00")
		}
	})
}
