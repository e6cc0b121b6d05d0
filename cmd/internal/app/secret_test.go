package app_test

import (
	"bytes"
	"encoding/json"
	"fmt"
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
	values := []any{secret, &secret, config, &config, []app.Secret{secret}}
	var out bytes.Buffer
	for _, value := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%t", "%10s", "%T %v"} {
			fmt.Fprintf(&out, verb, value)
		}
		encoded, err := json.Marshal(value)
		require.NoError(t, err)
		out.Write(encoded)
		for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			slog.New(handler).With("with", value).WithGroup("group").Info("line", "value", value)
		}
	}
	for _, format := range []string{"%s", "%x", "%X", "% x"} {
		require.NotContains(t, out.String(), fmt.Sprintf(format, canary))
	}
	require.Equal(t, canary, string(secret), "a conversion shows it")
}
