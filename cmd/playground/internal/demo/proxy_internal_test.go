package demo

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

// The timeline names each call by its purpose.
func TestMeaning(t *testing.T) {
	t.Parallel()
	stripe := stripetest.New(stripetest.Options{})
	t.Cleanup(stripe.Close)
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, purpose := meaning(r)
		require.NotEmpty(t, purpose)
		seen = append(seen, text)
		stripe.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	c := payments.New(payments.Config{SecretKey: "rk_test_1", BaseURL: server.URL, Timeout: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(c.Close)

	rejected, err := c.Check(t.Context())
	require.NoError(t, err)
	require.False(t, rejected)
	require.Equal(t, []string{"try GET payment_intents", "try GET refunds"}, seen)

	seen = nil
	intent, err := c.Create(t.Context(), "a-provider-key", payments.CreateParams{Amount: 2500, Currency: "usd", PaymentMethod: "pm_card_visa"})
	require.NoError(t, err)
	_, _ = c.Search(t.Context(), "order_id", "1")
	_, err = c.Get(t.Context(), intent.ID)
	require.NoError(t, err)
	_, err = c.Confirm(t.Context(), "another-provider-key", intent.ID, false)
	require.NoError(t, err)
	_, _ = c.Cancel(t.Context(), "a-third-provider-key", intent.ID)
	_, err = c.ListRefunds(t.Context(), intent.ID)
	require.NoError(t, err)
	_, err = c.ListDisputes(t.Context(), intent.ID)
	require.NoError(t, err)
	require.Equal(t, []string{
		"create the intent", "search the intent", "read the intent", "confirm the intent", "cancel the intent",
		"list the intent’s refunds", "list the intent’s disputes",
	}, seen)
}
