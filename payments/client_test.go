package payments_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	ordersapi "example.com/orders-api"
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

// These keys must never change (R5).
func TestKey(t *testing.T) {
	t.Parallel()
	id := uuid.MustParse("2f25d67b-20b8-8187-95ed-8befa242e93c")
	for want, got := range map[string]string{
		"orders-api-2f25d67b-20b8-8187-95ed-8befa242e93c":            payments.Key(id, "", 1),
		"orders-api-2f25d67b-20b8-8187-95ed-8befa242e93c-2":          payments.Key(id, "", 2),
		"orders-api-2f25d67b-20b8-8187-95ed-8befa242e93c-confirm":    payments.Key(id, "-confirm", 1),
		"orders-api-2f25d67b-20b8-8187-95ed-8befa242e93c-confirm-10": payments.Key(id, "-confirm", 10),
		"orders-api-2f25d67b-20b8-8187-95ed-8befa242e93c-cancel-3":   payments.Key(id, "-cancel", 3),
	} {
		require.Equal(t, want, got)
	}
}

func TestFailure(t *testing.T) {
	t.Parallel()
	require.Nil(t, payments.Failure(nil))
	known := &payments.Error{Code: "x"}
	require.Same(t, known, payments.Failure(fmt.Errorf("wrapped: %w", known)))
	other := payments.Failure(errors.New("of another kind"))
	require.True(t, other.NeedsOperator)
	require.Equal(t, payments.Unknown, other.Outcome)
}

func TestStepContext_wallTime(t *testing.T) {
	t.Parallel()
	client := payments.New(payments.Config{Timeout: time.Hour})
	step, cancel := client.StepContext(t.Context())
	defer cancel()
	send, cancel := payments.SendContext(step)
	defer cancel()
	for _, ctx := range []interface{ Deadline() (time.Time, bool) }{step, send} {
		deadline, ok := ctx.Deadline()
		require.True(t, ok)
		require.Equal(t, deadline.Round(0), deadline)
	}
	deadline, _ := send.Deadline()
	require.WithinDuration(t, time.Now().Add(36*time.Minute), deadline, time.Minute)
}

func TestFindCurrency(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]payments.Currency{
		"usd": {Decimals: 2, Minimum: 50, Maximum: 99_999_999, Step: 1},
		"afn": {Decimals: 2, Minimum: 1, Maximum: 99_999_999, Step: 1},
		"idr": {Decimals: 2, Minimum: 50, Maximum: 999_999_999_999, Step: 1},
		"jpy": {Decimals: 0, Minimum: 50, Maximum: 9_999_999_999, Step: 1},
		"huf": {Decimals: 2, Minimum: 17_500, Maximum: 9_999_999_999, Step: 1},
		"kwd": {Decimals: 3, Minimum: 1, Maximum: 99_999_999, Step: 10},
		"isk": {Decimals: 2, Minimum: 1, Maximum: 99_999_999, Step: 100},
		"zmw": {Decimals: 2, Minimum: 1, Maximum: 99_999_999, Step: 1},
	} {
		found, known := payments.FindCurrency(code)
		require.True(t, known, code)
		require.Equal(t, want, found, code)
	}
	for _, code := range []string{"zzz", "USD", "", " ", "us", "d a", "usd ", "usd aed", "ed "} {
		_, known := payments.FindCurrency(code)
		require.False(t, known, "%q", code)
	}
}

// The contract states the limits of one currency beside the items; its table is generated.
func TestFindCurrency_contract(t *testing.T) {
	t.Parallel()
	usd, _ := payments.FindCurrency("usd")
	require.Contains(t, string(ordersapi.Spec), fmt.Sprintf("from %d to %d in usd", usd.Minimum, usd.Maximum))
}

func TestFormatAmount(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		currency string
		amount   int64
		want     string
	}{
		{"eur", 1999, "19.99 EUR"},
		{"usd", 2000, "20.00 USD"},
		{"usd", 7, "0.07 USD"},
		{"jpy", 1999, "1999 JPY"},
		{"kwd", 12345, "12.345 KWD"},
		{"bhd", 45, "0.045 BHD"},
		{"isk", 500, "5.00 ISK"}, // no fraction in ISO 4217
		{"usd", -7, "-0.07 USD"},
		{"kwd", -70, "-0.070 KWD"},
		{"eur", math.MinInt64, "-92233720368547758.08 EUR"},
		{"xyz", 123, "1.23 XYZ"},                           // unknown
		{"eur", math.MaxInt64, "92233720368547758.07 EUR"}, // more than a float's 53 bits
	} {
		require.Equal(t, test.want, payments.FormatAmount(test.currency, test.amount))
	}
}
