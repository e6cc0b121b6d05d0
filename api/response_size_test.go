package api_test

import (
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/api"
)

// insertLargestOrders uses characters that HTML escapes with six bytes.
func (f *fixture) insertLargestOrders(t *testing.T, n int) {
	t.Helper()
	require.Equal(t, http.StatusCreated, f.create(t, newKey(), largestOrder("<")).status)
	f.exec(t, `
INSERT INTO orders (id, account_id, idempotency_key, email, currency, amount, items, metadata, payment_method, status, created_at)
SELECT gen_random_uuid(), account_id, 'copy-of-an-order-' || n, email, currency, amount, items, metadata, payment_method, 'pending', created_at
  FROM orders, generate_series(2, $1) AS n`, n)
}

func TestListOrders_size(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const all = 100
	f.insertLargestOrders(t, all)
	seen := map[string]bool{}
	for more, after := true, ""; more; {
		got := f.get(t, "/v1/orders?limit=100"+after)
		require.Less(t, len(got.body), 300<<10)
		require.NotContains(t, string(got.body), `\u003c`)
		var ids []string
		ids, more = got.page(t)
		for _, id := range ids {
			require.False(t, seen[id])
			seen[id] = true
		}
		after = "&after=" + ids[len(ids)-1]
	}
	require.Len(t, seen, all)
}

type slowClient struct {
	header  http.Header
	writing chan struct{}
	ended   chan struct{}
	end     func()
}

func newSlowClient() *slowClient {
	c := &slowClient{header: http.Header{}, writing: make(chan struct{}), ended: make(chan struct{})}
	c.end = sync.OnceFunc(func() { close(c.ended) })
	return c
}

func (c *slowClient) Header() http.Header { return c.header }
func (c *slowClient) WriteHeader(int)     {}

func (c *slowClient) Write([]byte) (int, error) {
	close(c.writing)
	<-c.ended
	return 0, os.ErrDeadlineExceeded
}

func (c *slowClient) SetWriteDeadline(deadline time.Time) error {
	if deadline.Before(time.Now()) {
		c.end()
	}
	return nil
}

func TestReads_slowClients(t *testing.T) {
	t.Parallel()
	f := newFixture(t, poolSize(1), limiterBounds(1, 1))
	slow := newSlowClient()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.router.ServeHTTP(slow, f.request(t, http.MethodGet, "/v1/orders?limit=100", ""))
	}()
	<-slow.writing
	require.Equal(t, http.StatusOK, f.get(t, "/v1/orders?limit=1").status)
	slow.end()
	<-ended
}

func TestLimitResponses_slowClients(t *testing.T) {
	t.Parallel()
	const limit, response = 32 << 20, 256 << 10
	body := make([]byte, response)
	handler := api.LimitResponses(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }))
	var clients []*slowClient
	var running sync.WaitGroup
	for range limit/response + 20 {
		c := newSlowClient()
		running.Go(func() { handler.ServeHTTP(c, nil) })
		<-c.writing
		clients = append(clients, c)
	}
	for i, c := range clients {
		select {
		case <-c.ended:
			require.Less(t, i, 20)
		default:
			require.GreaterOrEqual(t, i, 20)
			c.end()
		}
	}
	running.Wait()
}
