package payments_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
)

func TestNew_invalidConfig(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*payments.Config)
		want   string
	}{
		"no key":          {func(c *payments.Config) { c.SecretKey = "" }, "SecretKey must begin"},
		"publishable key": {func(c *payments.Config) { c.SecretKey = "pk_test_" + canary }, "SecretKey must begin"},
		"no such secret":  {func(c *payments.Config) { c.WebhookSecret = canary }, "WebhookSecret must begin"},
		"half a secret":   {func(c *payments.Config) { c.WebhookSecret = "whsec_" }, "WebhookSecret must begin"},
	} {
		cfg := payments.Config{SecretKey: secretKey, Timeout: time.Second, Logger: slog.New(slog.DiscardHandler)}
		test.change(&cfg)
		_, err := payments.New(cfg)
		require.ErrorContains(t, err, test.want, name)
		require.NotContains(t, err.Error(), canary)
	}
}

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
	client, err := payments.New(cfg)
	require.NoError(t, err)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		require.NotContains(t, fmt.Sprintf(verb, cfg), canary)
		require.NotContains(t, fmt.Sprintf(verb, &cfg), canary)
		require.NotContains(t, fmt.Sprintf(verb, client), canary)
	}
}
