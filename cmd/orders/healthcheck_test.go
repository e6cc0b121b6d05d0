package main_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
)

func TestHealthcheck_runningAPI(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.serve(f.environ, "--shutdown-delay", "0")
	u, err := url.Parse(a.Base)
	require.NoError(t, err)
	for name, address := range map[string]string{
		"the address it listens on": u.Host,
		"every address":             ":" + u.Port(),
		"every address of IPv4":     "0.0.0.0:" + u.Port(),
		"every address of IPv6":     "[::]:" + u.Port(), // of IPv4, too
		"an IPv4 address as IPv6":   "[::ffff:127.0.0.1]:" + u.Port(),
	} {
		// HTTP_PROXY must be ignored.
		t.Log(name)
		programtest.Eventually(t, func() bool { // a check of the database may take too long on a busy machine
			code, stdout, stderr := programtest.Run(t, []string{"LISTEN_ADDR=" + address, "HTTP_PROXY=http://192.0.2.1:1"}, "healthcheck")
			return code == 0 && stdout+stderr == ""
		})
	}

	a.Stop()
	for _, address := range []string{u.Host, "[fe80::1%none]:1"} { // there is no such zone
		stderr := programtest.Fail(t, []string{"LISTEN_ADDR=" + address}, "healthcheck")
		require.Contains(t, stderr, "orders: not healthy: dial tcp "+address)
	}
}

func TestHealthcheck_notHealthy(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		respond http.HandlerFunc
		stderr  string // its beginning
	}{
		"not ready": {
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
			"orders: not healthy: URL/readyz returned 503 Service Unavailable\n",
		},
		"a redirect": {
			func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/readyz" {
					http.Redirect(w, r, "/", http.StatusFound)
				}
			},
			"orders: not healthy: URL/readyz returned 302 Found\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(test.respond)
			t.Cleanup(server.Close)
			stderr := programtest.Fail(t, []string{"LISTEN_ADDR=" + server.Listener.Addr().String()}, "healthcheck")
			require.True(t, strings.HasPrefix(strings.ReplaceAll(stderr, server.URL, "URL"), test.stderr), stderr)
		})
	}
}
