package main_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHealthcheck_runningAPI(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.serve(f.environ, "--shutdown-delay", "0")
	u, err := url.Parse(a.base)
	require.NoError(t, err)
	for name, address := range map[string]string{
		"the address it listens on": u.Host,
		"every address":             ":" + u.Port(),
		"every address of IPv4":     "0.0.0.0:" + u.Port(),
	} {
		// HTTP_PROXY must be ignored.
		code, stdout, stderr := run(t, []string{"LISTEN_ADDR=" + address, "HTTP_PROXY=http://192.0.2.1:1"}, "healthcheck")
		require.Zero(t, code, "%s: %s", name, stderr)
		require.Empty(t, stdout+stderr, name)
	}

	a.stop()
	code, _, stderr := run(t, []string{"LISTEN_ADDR=" + u.Host}, "healthcheck")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "orders: not healthy: ")
}

func TestHealthcheck_url(t *testing.T) {
	t.Parallel()
	hung := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/well":
		case "/elsewhere":
			http.Redirect(w, r, "/well", http.StatusFound)
		case "/hangs":
			<-hung
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(hung) }) // before server.Close, which waits for it
	tests := map[string]struct {
		path   string
		stderr string // its beginning if the exit code must be 1
	}{
		"healthy":     {path: "/well"},
		"not ready":   {path: "/readyz", stderr: "orders: not healthy: URL/readyz returned 503 Service Unavailable\n"},
		"a redirect":  {path: "/elsewhere", stderr: "orders: not healthy: URL/elsewhere returned 302 Found\n"},
		"no response": {path: "/hangs", stderr: "orders: not healthy: "},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"healthcheck", "--url", server.URL + test.path}
			if test.path == "/hangs" {
				args = append(args, "--timeout", "50ms")
			}
			code, _, stderr := run(t, []string{}, args...)
			if test.stderr == "" {
				require.Zero(t, code, stderr)
				return
			}
			require.Equal(t, 1, code)
			require.True(t, strings.HasPrefix(strings.ReplaceAll(stderr, server.URL, "URL"), test.stderr), stderr)
		})
	}
}
