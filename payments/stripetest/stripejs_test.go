package stripetest_test

import (
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

// The cards of the fake Stripe.js exist, and a page of another origin may use the script.
func TestStripeJS(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	script := s.get("/v3/")
	require.Equal(t, http.StatusOK, script.status, script.body)
	require.Equal(t, "text/javascript; charset=utf-8", script.header.Get("Content-Type"))
	cards := regexp.MustCompile(`pm_card_\w+`).FindAllString(script.body, -1)
	require.Len(t, cards, 4)
	for _, card := range cards {
		s.create("amount=2000&currency=usd&payment_method_types[0]=card&payment_method=" + card)
	}
	require.Equal(t, "*", s.post("/customer/pi_1/approve", "", "").header.Get("Access-Control-Allow-Origin"))
}
