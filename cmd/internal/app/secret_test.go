package app_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/cmd/internal/app"
)

func TestSecret_notPrinted(t *testing.T) {
	t.Parallel()
	const canary = "canary"
	secret := app.Secret(canary)
	config := app.Config{Database: app.Database{DatabaseURL: canary}, Stripe: app.Stripe{SecretKey: canary}, Mail: app.Mail{SMTPURL: canary}}

	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%t", "%10s", "%T %v"} {
		for name, value := range map[string]any{
			"itself":       secret,
			"its pointer":  &secret,
			"in a struct":  config,
			"in a pointer": &config,
			"in a slice":   []app.Secret{secret},
			"in a map":     map[app.Secret]app.Secret{secret: secret},
		} {
			text := fmt.Sprintf(verb, value)
			require.NotContains(t, text, canary, "%s with %s", name, verb)
			require.NotContains(t, text, fmt.Sprintf("%x", canary), "%s with %s", name, verb)
			require.NotContains(t, text, fmt.Sprintf("%X", canary), "%s with %s", name, verb)
		}
	}
	require.NotContains(t, fmt.Sprint(secret, config)+fmt.Sprintln(secret), canary)
	require.NotContains(t, fmt.Errorf("wrapped: %v", secret).Error(), canary)

	encoded, err := json.Marshal(map[string]any{"secret": secret, "config": config})
	require.NoError(t, err)
	require.NotContains(t, string(encoded), canary)

	for name, handler := range map[string]func(io.Writer, *slog.HandlerOptions) slog.Handler{
		"text": func(w io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewTextHandler(w, o) },
		"json": func(w io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewJSONHandler(w, o) },
	} {
		var out bytes.Buffer
		logger := slog.New(handler(&out, nil))
		logger.With("with", secret).WithGroup("group").Info("line", "secret", secret, "config", config, "pointer", &config, slog.Any("any", secret))
		require.NotEmpty(t, out.String())
		require.NotContains(t, out.String(), canary, name)
	}
	require.Equal(t, canary, string(secret), "a conversion shows it")
}
