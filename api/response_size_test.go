package api_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
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

// slowClient does not read a response before read is closed.
type slowClient struct {
	http.ResponseWriter
	writing chan struct{}
	read    chan struct{}
}

func (c slowClient) Write(body []byte) (int, error) {
	close(c.writing)
	<-c.read
	return len(body), nil
}

func TestReads_slowClients(t *testing.T) {
	t.Parallel()
	f := newFixture(t, poolSize(1), limiterBounds(1, 1))
	slow := slowClient{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.router.ServeHTTP(slow, f.request(t, http.MethodGet, "/v1/orders?limit=100", ""))
	}()
	<-slow.writing
	require.Equal(t, http.StatusOK, f.get(t, "/v1/orders?limit=1").status)
	close(slow.read)
	<-ended
}
