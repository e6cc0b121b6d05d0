package main_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
	"example.com/orders-api/internal/programtest"
)

const (
	firstSecret  = "whsec_dGhlIGZpcnN0IHNlY3JldCBvZiB0aGVzZSB0ZXN0cw=="
	secondSecret = "whsec_dGhlIHNlY29uZCBzZWNyZXQgb2YgdGhlc2UgdGVzdHM="
)

// eventShop is a shop that verifies events with a secret.
type eventShop struct {
	*httptest.Server
	mu     sync.Mutex
	secret string
	status int
	events []client.Event
}

func newEventShop(t *testing.T) *eventShop {
	t.Helper()
	s := &eventShop{secret: firstSecret, status: http.StatusNoContent}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		event, err := client.VerifyEvent([]string{s.secret}, r.Header, body, time.Now())
		if err != nil {
			t.Error(err)
		}
		s.events = append(s.events, event)
		w.WriteHeader(s.status)
	}))
	t.Cleanup(s.Close)
	return s
}

// set changes the secret and the status of the shop's responses.
func (s *eventShop) set(secret string, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secret, s.status = secret, status
}

func (s *eventShop) received() []client.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// From the environment to the verified event.
func TestEvents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	shop := newEventShop(t)
	f.environ = f.with("EVENTS_URL="+shop.URL+"/events", "EVENTS_SECRET="+firstSecret)
	env := f.with("SMTP_URL=smtp://"+programtest.NewMailServer(t, "").Address, "LOG_LEVEL=warn")
	order := f.createPaidOrder("an-order-with-an-event")
	programtest.Succeed(t, env, "worker", "--once")
	events := shop.received()
	require.Len(t, events, 1)
	require.Equal(t, []string{"order.paid", order, f.account().String()}, []string{events[0].Type, events[0].Data.OrderID, events[0].AccountID})
	require.Regexp(t, `(?m)^20.{17} +event\.done \{"attempt": ?1\}$`, f.keys("show", order))

	// While the shop changes the secret, both sign.
	both := append(env, "EVENTS_SECRET="+firstSecret+","+secondSecret)
	for _, secret := range []string{firstSecret, secondSecret} {
		shop.set(secret, http.StatusNoContent)
		f.createPaidOrder("an-order-for-" + secret[40:])
		programtest.Succeed(t, both, "worker", "--once")
	}
	require.Len(t, shop.received(), 3)

	shop.set(firstSecret, http.StatusInternalServerError)
	f.createPaidOrder("an-order-whose-event-fails")
	stderr := programtest.Fail(t, env, "worker", "--once")
	require.Equal(t, "orders: events not done: 1 to be retried, 0 failed, 0 lost\n", stderr)
	f.exec("UPDATE staged_jobs SET run_at = now(), attempt = 299")
	programtest.Fail(t, env, "worker", "--once")
	list, _ := programtest.Succeed(t, env, "jobs", "list")
	require.Regexp(t, `(?m)^[0-9a-f-]{36}  event +`+f.account().String()+`  \{"type": "order\.paid", "order_id": "[0-9a-f-]{36}"\}  300 .*  the endpoint responded with status 500$`, list)
	shop.set(firstSecret, http.StatusOK)
	retried, _ := programtest.Succeed(t, env, "jobs", "retry", "all", "--reason", "the shop is back")
	require.Equal(t, "The worker tries again, now: 1\n", retried)
	programtest.Succeed(t, env, "worker", "--once")
	events = shop.received()
	require.Equal(t, events[3].ID, events[len(events)-1].ID)
	require.Zero(t, f.count("SELECT count(*) FROM staged_jobs"))
}
