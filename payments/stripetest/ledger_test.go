package stripetest_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

func TestLedger(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	pay := func(amount int, currency, order string) {
		form := fmt.Sprintf("amount=%d&currency=%s&payment_method=pm_card_visa&payment_method_types[0]=card&confirm=true", amount, currency)
		if order != "" {
			form += "&metadata[order_id]=" + order
		}
		s.create(form)
	}
	require.Empty(t, s.Charges())
	require.Empty(t, s.MoneyMoved())
	pay(1000, "usd", "a")
	pay(500, "jpy", "b")
	pay(250, "usd", "")
	pay(250, "usd", "")
	require.Equal(t, http.StatusPaymentRequired, s.post(intentsPath, "", decline+"&metadata[order_id]=a").status)
	require.Empty(t, s.OrdersChargedTwice(), "neither failed charges nor those of no order count")

	pay(1000, "usd", "a")
	require.Equal(t, []string{"a"}, s.OrdersChargedTwice())
	require.Len(t, s.ChargesByOrder("a"), 2)
	require.Len(t, s.ChargesByOrder("b"), 1)
	require.Empty(t, s.ChargesByOrder("c"))
	require.Equal(t, map[string]int64{"usd": 2500, "jpy": 500}, s.MoneyMoved())
}

func TestPage_noSecrets(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	r := s.post(intentsPath, "k", visa)
	page := s.get("/")
	require.Contains(t, page.header.Get("Content-Type"), "text/plain")
	require.NotContains(t, page.body, r.field("client_secret"))
	require.NotContains(t, page.body, "sk_test")
	for _, shown := range []string{r.field("id"), "order-1", "2000 usd"} {
		require.Contains(t, page.body, shown)
	}
	require.Len(t, s.Requests(), 1, "the page is not part of the API")
}
