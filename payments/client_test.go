package payments_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"example.com/orders-api/payments"
)

var discard = slog.New(slog.DiscardHandler)

func TestNew_invalidConfig(t *testing.T) {
	t.Parallel()
	whole := payments.Config{SecretKey: secretKey, Timeout: time.Second, Logger: discard}
	for name, test := range map[string]struct {
		change func(*payments.Config)
		want   string
	}{
		"no key":          {func(c *payments.Config) { c.SecretKey = "" }, "SecretKey must begin"},
		"publishable key": {func(c *payments.Config) { c.SecretKey = "pk_test_" + canary }, "SecretKey must begin"},
		"no timeout":      {func(c *payments.Config) { c.Timeout = 0 }, "Timeout"},
		"no such secret":  {func(c *payments.Config) { c.WebhookSecret = canary }, "WebhookSecret must begin"},
		"half a secret":   {func(c *payments.Config) { c.WebhookSecret = "whsec_" }, "WebhookSecret must begin"},
		"no logger":       {func(c *payments.Config) { c.Logger = nil }, "Logger is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := whole
			test.change(&cfg)
			_, err := payments.New(cfg)
			require.ErrorContains(t, err, test.want)
			require.NotContains(t, err.Error(), canary)
		})
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
	cfg := payments.Config{SecretKey: secretKey, WebhookSecret: webhookSecret, Timeout: time.Second, Logger: discard}
	client, err := payments.New(cfg)
	require.NoError(t, err)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		require.NotContains(t, fmt.Sprintf(verb, cfg), canary)
		require.NotContains(t, fmt.Sprintf(verb, &cfg), canary)
		require.NotContains(t, fmt.Sprintf(verb, client), canary)
	}
}

// The client must not affect other uses of stripe-go in the same process.
func TestNew_stripeGlobalsUnchanged(t *testing.T) {
	t.Parallel()
	type globals struct {
		key       string
		telemetry bool
		logger    stripe.LeveledLoggerInterface
		backend   stripe.Backend
	}
	read := func() globals {
		return globals{stripe.Key, stripe.EnableTelemetry, stripe.DefaultLeveledLogger, stripe.GetBackend(stripe.APIBackend)}
	}
	before := read()
	provider := startProvider(t, response{status: 200, body: intent("succeeded")})
	client := newClient(t, provider.url)
	for range 2 { // telemetry would be sent with the second request
		_, err := client.Get(t.Context(), "pi_1")
		require.NoError(t, err)
	}
	require.NotContains(t, provider.seen()[1].header, "X-Stripe-Client-Telemetry")

	require.Empty(t, stripe.Key)
	after := read()
	require.Same(t, before.backend, after.backend)
	require.Same(t, before.logger, after.logger)
	require.Equal(t, before.key, after.key)
	require.Equal(t, before.telemetry, after.telemetry)
}
