package program_test

import (
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/lab/labtest"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/payments/stripetest"
)

// forwardProxy connects every CONNECT request with the right password to one address.
type forwardProxy struct {
	target string
	mu     sync.Mutex
	hosts  []string
}

func (p *forwardProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.hosts = append(p.hosts, r.Method+" "+r.Host)
	p.mu.Unlock()
	if r.Header.Get("Proxy-Authorization") != "Basic dXNlcjpjYW5hcnk=" { // user:canary
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	server, err := new(net.Dialer).DialContext(r.Context(), "tcp", p.target)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer func() { _ = server.Close() }()
	w.WriteHeader(http.StatusOK)
	client, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	_, _ = io.Copy(server, client)
	_ = server.Close()
	back.Wait()
}

// The program reaches Stripe through a forward proxy. It trusts the certificates of
// SSL_CERT_FILE, which Go reads on Linux.
func TestForwardProxy(t *testing.T) {
	t.Parallel()
	stripe := stripetest.New(stripetest.Options{})
	server := httptest.NewTLSServer(stripe)
	t.Cleanup(server.Close)
	t.Cleanup(stripe.Close)
	plain := httptest.NewServer(stripe)
	t.Cleanup(plain.Close)
	certificate := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(certificate, block, 0o600))

	database := dbtest.URL(dbtest.New(t))
	const host = "https://example.com" // its certificate names it
	for name, test := range map[string]struct {
		user, base, without string
		hosts               []string // requests to the proxy
		want                string
	}{
		"used":           {"user:canary@", host, "", []string{"CONNECT example.com:443"}, "Discrepancies: 0"},
		"refuses":        {"", host, "", []string{"CONNECT example.com:443"}, "payments: not_executed: no response"},
		"not for a host": {"user:canary@", "https://stripe.invalid", "stripe.invalid", nil, "no response"},
		"not loopback":   {"user:canary@", plain.URL, "", nil, "Discrepancies: 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := &forwardProxy{target: server.Listener.Addr().String()}
			listener := httptest.NewServer(proxy)
			t.Cleanup(listener.Close)
			address := "http://" + test.user + strings.TrimPrefix(listener.URL, "http://")
			p := labtest.Start(t, programtest.Environ(t, "DATABASE_URL="+database, "STRIPE_SECRET_KEY=sk_test_proxy",
				"STRIPE_API_BASE="+test.base, "SSL_CERT_FILE="+certificate,
				"HTTPS_PROXY="+address, "HTTP_PROXY="+address, "NO_PROXY="+test.without), "reconcile")
			p.Wait()
			report := p.Stdout.String() + p.Stderr.String()
			require.Contains(t, report, test.want)
			require.NotContains(t, report, "canary")
			proxy.mu.Lock()
			defer proxy.mu.Unlock()
			require.Subset(t, test.hosts, proxy.hosts)
			require.Equal(t, len(test.hosts) > 0, len(proxy.hosts) > 0)
		})
	}
}
