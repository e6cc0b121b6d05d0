package stripetest_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

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
