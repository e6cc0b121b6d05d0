package shop_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/examples/shop"
)

var (
	eventKey    = []byte("the shop's endpoint has this key")
	eventSecret = "whsec_" + base64.StdEncoding.EncodeToString(eventKey)
)

// delivery is a request of the API to the shop's endpoint.
type delivery struct {
	id, body string
	sent     time.Time
	key      []byte
}

func paidEvent(orderID string) delivery {
	id := uuid.NewString()
	body := `{"id":"` + id + `","type":"order.paid","timestamp":"2026-11-20T09:28:16.482913Z","data":{"order_id":"` + orderID + `"}}`
	return delivery{id, body, time.Now(), eventKey}
}

// deliver returns the status of the shop's response.
func (f *fixture) deliver(d delivery) int {
	f.Helper()
	sent := strconv.FormatInt(d.sent.Unix(), 10)
	mac := hmac.New(sha256.New, d.key)
	_, _ = mac.Write([]byte(d.id + "." + sent + "." + d.body))
	request, err := http.NewRequestWithContext(f.Context(), http.MethodPost, f.url+shop.EventsPath, strings.NewReader(d.body))
	require.NoError(f, err)
	request.Header.Set("webhook-id", d.id)
	request.Header.Set("webhook-timestamp", sent)
	request.Header.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	response, err := f.browser().http.Do(request)
	require.NoError(f, err)
	require.NoError(f, response.Body.Close())
	return response.StatusCode
}

func (f *fixture) handleEvents() {
	f.Helper()
	require.NoError(f, f.shop.HandleEvents(f.Context()))
}

// orderID returns the id of the only order.
func (f *fixture) orderID() (id string) {
	f.Helper()
	require.NoError(f, f.Pool.QueryRow(f.Context(), "SELECT id::text FROM orders").Scan(&id))
	return id
}

// The API repeats an event only until the shop has acknowledged it, so the shop itself must repeat its work. An
// event that is delivered twice is handled once, also if the second delivery comes days later.
func TestEvents_handledOnce(t *testing.T) {
	t.Parallel()
	f, b, path := newPurchase(t)
	f.payLost(b, path)
	require.Eventually(t, func() bool { return f.count("orders WHERE status = 'paid'") == 1 }, time.Minute, time.Millisecond)
	event := paidEvent(f.orderID())
	for range 2 {
		require.Equal(t, http.StatusNoContent, f.deliver(event))
	}
	forged, broken := paidEvent(f.orderID()), paidEvent(f.orderID())
	forged.key, broken.body = []byte("another key"), "<html>"
	require.Equal(t, []int{http.StatusBadRequest, http.StatusBadRequest}, []int{f.deliver(forged), f.deliver(broken)})
	require.Equal(t, http.StatusNoContent, f.deliver(paidEvent(uuid.NewString())), "an order that the API does not have, as after lost rows")
	f.setNetwork(cut, 10*time.Millisecond)
	require.Error(t, f.shop.HandleEvents(t.Context()))
	require.Equal(t, 2, f.count("shop.events WHERE handled_at IS NULL"))

	f.setNetwork("", time.Minute)
	f.handleEvents()
	require.Equal(t, "paid", f.row(path).State)
	require.Zero(t, f.count("shop.events WHERE handled_at IS NULL"))

	f.exec("UPDATE shop.events SET received_at = received_at - interval '6 days', handled_at = handled_at - interval '6 days'")
	event.sent = time.Now()
	require.Equal(t, http.StatusNoContent, f.deliver(event))
	f.handleEvents()
	require.Equal(t, 2, f.count("shop.events WHERE handled_at < now() - interval '5 days'"))
	f.exec("UPDATE shop.events SET handled_at = handled_at - interval '2 days'")
	f.handleEvents()
	require.Zero(t, f.count("shop.events"), "it is forgotten after seven days")
	require.Len(t, f.Stripe.Charges(), 1)
}
