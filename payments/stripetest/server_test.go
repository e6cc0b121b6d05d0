package stripetest_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

func TestAuthorize(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	for authorization, message := range map[string]string{
		"Bearer sk_test_canary": "",
		"Bearer rk_test_canary": "",
		"Basic " + base64.StdEncoding.EncodeToString([]byte("sk_test_canary:")): "",
		" ":                     "You did not provide an API key.",
		"Digest sk_test_canary": "You did not provide an API key.",
		"Bearer canary":         "Invalid API Key provided: ***",
		"Bearer pk_test_canary": "Invalid API Key provided: ***",
		"Bearer sk_live_canary": "This is a fake Stripe that moves no money.",
		"Bearer rk_live_canary": "This is a fake Stripe that moves no money.",
	} {
		r := s.send(http.MethodPost, intentsPath, visa, http.Header{"Authorization": {authorization}, "Idempotency-Key": {authorization}})
		require.NotContains(t, r.body, "canary")
		if message == "" {
			require.Equal(t, http.StatusOK, r.status, r.body)
			continue
		}
		requireError(t, r, http.StatusUnauthorized, "", "")
		require.Contains(t, r.field("error.message"), message)
		require.Zero(t, s.executions(authorization))
	}
	require.Len(t, s.Charges(), 3)
}

// Old refunds are settled: a pending one succeeds, and one of the card that fails refunds fails later.
func TestSettleRefunds(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	refund := func(card string) string {
		return s.post("/v1/refunds", "", "payment_intent="+s.create(strings.Replace(visa, "pm_card_visa", card, 1))).field("id")
	}
	made, pending, failing := refund("pm_card_visa"), refund("pm_card_pendingRefund"), refund("pm_card_refundFail")
	statuses := func() []string {
		var all []string
		for _, id := range []string{made, pending, failing} {
			all = append(all, s.get("/v1/refunds/"+id).field("status"))
		}
		return all
	}
	require.Equal(t, []string{"succeeded", "pending", "succeeded"}, statuses())
	require.Empty(t, s.SettleRefunds(time.Minute))
	s.Advance(2 * time.Minute)
	require.ElementsMatch(t, []string{pending, failing}, s.SettleRefunds(time.Minute))
	require.Equal(t, []string{"succeeded", "succeeded", "failed"}, statuses())
	require.Empty(t, s.SettleRefunds(time.Minute))
}

// Evidence decides a dispute by its text, and a dispute that is accepted is lost.
func TestDisputes(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	for _, c := range []struct{ card, path, form, status string }{
		{"createDispute", "", "evidence[uncategorized_text]=winning_evidence", "won"},
		{"createDispute", "", "evidence[uncategorized_text]=losing_evidence&submit=true", "lost"},
		{"createDispute", "", "evidence[uncategorized_text]=a+letter", "under_review"},
		{"createDispute", "/close", "", "lost"},
		{"createDisputeInquiry", "", "evidence[uncategorized_text]=a+letter", "warning_under_review"},
		{"createDisputeInquiry", "/close", "", "warning_closed"},
	} {
		intent := s.create(strings.Replace(visa, "pm_card_visa", "pm_card_"+c.card, 1))
		id := s.Disputes()[len(s.Disputes())-1].ID
		path := "/v1/disputes/" + id + c.path
		requireError(t, s.post(path, "", "unknown=1"), http.StatusBadRequest, "parameter_unknown", "unknown")
		r := s.post(path, "", c.form)
		require.Equal(t, []string{id, intent, c.status}, []string{r.field("id"), r.field("payment_intent"), r.field("status")}, r.body)
		requireError(t, s.post(path, "", c.form), http.StatusBadRequest, "", "") // decided already
	}
	requireError(t, s.post("/v1/disputes/dp_none", "", ""), http.StatusNotFound, "resource_missing", "dispute")
}

func TestUpdateIntent(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	path := "/v1/payment_intents/" + s.create(visa+"&metadata[other]=value")
	requireError(t, s.post(path, "", "amount=200"), http.StatusBadRequest, "parameter_unknown", "amount")
	changed := s.post(path, "", "metadata[order_id]=&metadata[note]=refunded")
	require.Regexp(t, `(?s)"metadata": \{\s*"note": "refunded",\s*"other": "value"\s*\}`, changed.body)
	require.Equal(t, changed.body, s.get(path).body)
	requireError(t, s.post("/v1/payment_intents/pi_none", "", ""), http.StatusNotFound, "resource_missing", "intent")
}

func TestCheckHost(t *testing.T) {
	t.Parallel()
	machine, err := os.Hostname()
	require.NoError(t, err)
	handler := stripetest.CheckHost("metrics.example.com:8081", http.NotFoundHandler())
	status := func(host string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
		r.Host = host
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code
	}
	for _, host := range []string{
		"127.0.0.1:8081", "10.1.2.3", "[::1]:8081", "[fd00::1]", "localhost:8081", "LOCALHOST.", "app.localhost:8081",
		"stripetest:12111", "orders-api.orders.svc:8081", "10-1-2-3.orders.pod.cluster.local:8081",
		"metrics.example.com:8081", "Metrics.Example.Com", machine, machine + ":8081", "",
	} {
		require.Equal(t, http.StatusNotFound, status(host), host)
	}
	for _, host := range []string{
		"evil.example", "evil.example:8081", "evil.example.", "127.0.0.1.evil.example", "localhost.evil.example:8081",
		"notlocalhost.example", "x.metrics.example.com", "svc.example", "printer.local", "a.b:c:d",
	} {
		require.Equal(t, http.StatusMisdirectedRequest, status(host), host)
	}
}

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
