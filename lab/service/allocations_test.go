package orders_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/api"
	"example.com/orders-api/internal/admission"
	"example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments"
)

// The bounds are 8 % above the measured values: the race detector adds up to 6 %.
func TestAllocations(t *testing.T) {
	// Not parallel: allocations are counted for the whole process.
	const mostOfAnOrder, mostOfAReplay = 1430, 322
	buy := newOrderSender(t)
	buy(0)
	n := 0
	order := testing.AllocsPerRun(50, func() {
		n++
		buy(n)
	})
	replay := testing.AllocsPerRun(50, func() { buy(1) })
	t.Logf("an order: %.0f allocations, a replay: %.0f", order, replay)
	require.LessOrEqual(t, order, float64(mostOfAnOrder))
	require.LessOrEqual(t, replay, float64(mostOfAReplay))
}

func newOrderSender(t *testing.T) func(n int) {
	t.Helper()
	shop := orderstest.New(t, orderstest.Options{Payments: payments.Config{Transport: admission.SuspendDuring(&fastProvider{})}})
	router, apiKey := shop.API(t, api.Config{})
	order := []byte(`{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa","items":` + itemsJSON + `,"metadata":{"note":"blue"}}`)
	return func(n int) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/orders", bytes.NewReader(order))
		require.NoError(t, err)
		r.RemoteAddr = "127.0.0.1:4711"
		r.Header.Set("Authorization", "Bearer "+apiKey)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", fmt.Sprintf("an-order-of-this-test-%d", n))
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		require.Equal(t, http.StatusCreated, w.Code)
	}
}

type fastProvider struct {
	mu   sync.Mutex
	last string // the intent that was created last
}

func (o *fastProvider) RoundTrip(r *http.Request) (*http.Response, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if path.Base(r.URL.Path) == "confirm" {
		o.last = strings.NewReplacer(`"requires_confirmation"`, `"succeeded"`, `"amount_received":0`, `"amount_received":5750`).Replace(o.last)
	} else {
		sent, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		form, err := url.ParseQuery(string(sent))
		if err != nil {
			return nil, err
		}
		o.last = fmt.Sprintf(`{"id":"pi_%s","object":"payment_intent","amount":%s,"amount_received":0,"currency":%q,"status":"requires_confirmation",`+
			`"created":1767323045,"metadata":{"account_id":%q,"order_id":%q,"idempotency_key_id":%q}}`,
			form.Get("metadata[order_id]"), form.Get("amount"), form.Get("currency"),
			form.Get("metadata[account_id]"), form.Get("metadata[order_id]"), form.Get("metadata[idempotency_key_id]"))
	}
	return &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(strings.NewReader(o.last)),
		Request:    r,
	}, nil
}
