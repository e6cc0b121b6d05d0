package main_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
)

// Only a ready server is healthy, whatever HTTP_PROXY is. TestRoles checks one that is ready.
func TestHealthcheck(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	address := server.Listener.Addr().String()
	env := []string{"LISTEN_ADDR=" + address, "HTTP_PROXY=http://192.0.2.1:1"}
	require.Equal(t, "orders: not healthy: http://"+address+"/readyz returned 503 Service Unavailable\n", programtest.Fail(t, env, "healthcheck"))
	server.Close()
	require.Contains(t, programtest.Fail(t, env, "healthcheck"), "orders: not healthy: dial tcp "+address)
}
