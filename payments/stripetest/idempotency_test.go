package stripetest_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

func TestKey_replay(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fault  stripetest.Fault
		path   string
		form   string
		status int
	}{
		"a success":                  {"", intentsPath, visa, http.StatusOK},
		"a decline":                  {"", intentsPath, decline, http.StatusPaymentRequired},
		"a 500 with its effect":      {stripetest.ErrorAfter, intentsPath, visa, http.StatusInternalServerError},
		"a 500 without an effect":    {stripetest.ErrorBefore, intentsPath, visa, http.StatusInternalServerError},
		"a 400 raised while running": {"", refundsPath, "amount=5000&payment_intent=", http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, stripetest.Options{})
			path := test.path
			if path == refundsPath {
				test.form += s.create(visa)
			}
			if test.fault != "" {
				s.Inject(stripetest.Rule{Fault: test.fault, Key: "k"})
			}
			first := s.post(path, "k", test.form)
			require.Equal(t, test.status, first.status, first.body)
			require.Equal(t, "k", first.header.Get("Idempotency-Key"))
			require.NotEmpty(t, first.header.Get("Request-Id"))
			require.Equal(t, first.header.Get("Request-Id"), first.header.Get("Original-Request"))
			require.Equal(t, "false", first.header.Get("Stripe-Should-Retry"))
			require.NotContains(t, first.header, "Idempotent-Replayed")
			charges := s.Charges()

			second := s.post(path, "k", test.form)
			require.Equal(t, first.status, second.status)
			require.Equal(t, first.body, second.body)
			require.Equal(t, "true", second.header.Get("Idempotent-Replayed"))
			require.Equal(t, "k", second.header.Get("Idempotency-Key"))
			require.Equal(t, first.header.Get("Request-Id"), second.header.Get("Original-Request"))
			require.NotEqual(t, first.header.Get("Request-Id"), second.header.Get("Request-Id"))
			require.Equal(t, "false", second.header.Get("Stripe-Should-Retry"))
			require.Equal(t, charges, s.Charges())
		})
	}
}

func TestKey_inFlight(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	hold := s.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Key: "k"})
	first := s.background(intentsPath, "k", visa)
	reached(t, hold)

	r := s.post(intentsPath, "k", visa)
	requireError(t, r, http.StatusConflict, "idempotency_key_in_use", "")
	require.Equal(t, "invalid_request_error", r.field("error.type"))
	require.Contains(t, r.field("error.message"), "(that probably means you submitted twice")
	require.NotContains(t, r.header, "Stripe-Should-Retry")

	mismatch := s.post(intentsPath, "k", "amount=1&currency=usd")
	require.Equal(t, "idempotency_error", mismatch.field("error.type"), "the comparison comes first")
	require.Empty(t, s.Charges())

	hold.Release()
	require.Equal(t, http.StatusOK, (<-first).status)
	require.Equal(t, "true", s.post(intentsPath, "k", visa).header.Get("Idempotent-Replayed"), "the 409 was not stored")
	require.Equal(t, 1, s.executions("k"))
	require.Len(t, s.Charges(), 1)
}

func TestKey_expires(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	require.Equal(t, http.StatusOK, s.post(intentsPath, "k", visa).status)
	s.Advance(24*time.Hour - time.Minute)
	require.Equal(t, "true", s.post(intentsPath, "k", visa).header.Get("Idempotent-Replayed"))
	s.Advance(2 * time.Minute)
	require.NotContains(t, s.post(intentsPath, "k", visa).header, "Idempotent-Replayed")
	require.Equal(t, 2, s.executions("k"))
	require.Equal(t, []string{"order-1"}, s.OrdersChargedTwice())
}
