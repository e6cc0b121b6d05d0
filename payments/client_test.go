package payments_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
)

func TestKeyMode(t *testing.T) {
	t.Parallel()
	for key, mode := range map[string]string{
		"sk_live_x": "live", "rk_live_x": "live", "sk_test_x": "test", "rk_test_x": "test",
		"": "unknown", "sk_x": "unknown", "x_sk_live_": "unknown",
	} {
		require.Equal(t, mode, payments.KeyMode(key), key)
	}
}

func TestFormat_noSecret(t *testing.T) {
	t.Parallel()
	cfg := payments.Config{SecretKey: secretKey, WebhookSecret: webhookSecret, Timeout: time.Second, Logger: slog.New(slog.DiscardHandler)}
	client := payments.New(cfg)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		require.NotContains(t, fmt.Sprintf(verb, cfg), canary)
		require.NotContains(t, fmt.Sprintf(verb, &cfg), canary)
		require.NotContains(t, fmt.Sprintf(verb, client), canary)
	}
}
