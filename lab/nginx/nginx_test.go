//go:build nginx

// Package nginx_test starts deploy/nginx in front of the program, and attacks it. Only the values of a shop and
// the paths of nginx differ from what is shipped, see start.
package nginx_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/lab/labtest"
)

func TestMain(m *testing.M) { os.Exit(labtest.Main{M: m}.Run()) }

// free returns an address that is free now, and that of each later restart.
func free(t *testing.T) string {
	t.Helper()
	port, err := labtest.FreePort()
	require.NoError(t, err)
	return fmt.Sprint("127.0.0.1:", port)
}

type values struct {
	rate      int            // requests a second of an API key
	upstreams []string       // addresses
	tls       *x509.CertPool // gets the certificate; nil: without TLS
}

// start starts nginx with the shipped configuration, and returns its address.
func start(t *testing.T, v values) string {
	t.Helper()
	prefix, err := os.MkdirTemp("", "nginx-")
	require.NoError(t, err)
	address, servers := free(t), ""
	for _, upstream := range v.upstreams {
		servers += "server " + upstream + " max_fails=0; "
	}
	shop := []string{
		"server 127.0.0.1:8080 max_fails=0;", servers,
		"rate=100r/s", fmt.Sprintf("rate=%dr/s", v.rate),
	}
	if v.tls == nil {
		shop = append(shop, "listen 443 ssl;", "listen "+address+" backlog=8192;", "ssl_certificate", "# ssl_certificate")
	} else {
		certify(t, v.tls, prefix)
		shop = append(shop, "listen 443 ssl;", "listen "+address+" ssl;", "/etc/nginx/", prefix+"/")
	}
	install(t, prefix, "routes.conf")
	install(t, prefix, "shop.conf", shop...)
	install(t, prefix, "nginx.conf",
		"user www-data;", "user root;",
		"/run/nginx.pid", "nginx.pid",
		"/var/log/nginx/error.log", "error.log",
		"access_log /var/log/nginx/access.log", "client_body_temp_path body; proxy_temp_path proxy; access_log access.log")
	nginx := exec.CommandContext(context.WithoutCancel(t.Context()), "nginx", "-p", prefix, "-c", filepath.Join(prefix, "nginx.conf"), "-e", "error.log", "-g", "daemon off;")
	require.NoError(t, nginx.Start())
	t.Cleanup(func() {
		require.NoError(t, nginx.Process.Signal(syscall.SIGTERM))
		require.NoError(t, nginx.Wait())
		require.NoError(t, os.RemoveAll(prefix))
	})
	require.Eventually(t, func() bool {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}, 10*time.Second, 10*time.Millisecond, "nginx does not listen")
	return address
}

// install copies a file of deploy/nginx, in which each old text must occur.
func install(t *testing.T, prefix, name string, oldnew ...string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "deploy", "nginx", name))
	require.NoError(t, err)
	for i := 0; i < len(oldnew); i += 2 {
		require.Contains(t, string(content), oldnew[i], name)
	}
	changed := strings.NewReplacer(oldnew...).Replace(string(content))
	require.NoError(t, os.WriteFile(filepath.Join(prefix, name), []byte(changed), 0o600))
}

// certify writes a certificate of localhost, and adds it to the pool.
func certify(t *testing.T, pool *x509.CertPool, folder string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"orders.example.com"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool.AddCert(certificate)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	for name, block := range map[string]*pem.Block{
		"orders.crt": {Type: "CERTIFICATE", Bytes: der},
		"orders.key": {Type: "PRIVATE KEY", Bytes: secret},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), pem.EncodeToMemory(block), 0o600))
	}
}

func serve(t *testing.T) (*labtest.Fixture, *programtest.API) {
	t.Helper()
	f := labtest.NewFixture(t)
	return f, f.Serve(f.With("LISTEN_ADDR=127.0.0.1:0"), "--shutdown-delay", "0")
}

func upstream(a *programtest.API) []string { return []string{strings.TrimPrefix(a.Base, "http://")} }

// The Location of a 202 leads to the key, whatever the proxy does with slashes and percent signs.
func TestNginx_location(t *testing.T) {
	t.Parallel()
	_, a := serve(t)
	a.Base = "http://" + start(t, values{rate: 100, upstreams: upstream(a)})
	for _, key := range []string{"order/2026/the-first", "order%2F2026-the-first", "100%-of-the-orders", "../../../etc/passwd", "order//of/two/slashes"} {
		accepted, err := a.Do(t.Context(), http.MethodPost, "/v1/orders", programtest.Tea,
			http.Header{"Idempotency-Key": {key}, "Prefer": {"respond-async"}})
		require.NoError(t, err)
		require.Equal(t, http.StatusAccepted, accepted.Status, accepted.Body)
		status, err := a.Do(t.Context(), http.MethodGet, accepted.Header.Get("Location"), "", nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status.Status, key)
		require.Contains(t, status.Body, strconv.Quote(key))
	}
	a.Stop()
}

func TestNginx_tls(t *testing.T) {
	t.Parallel()
	f, a := serve(t)
	pool := x509.NewCertPool()
	address := start(t, values{rate: 100, upstreams: upstream(a), tls: pool})
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: pool, ServerName: "orders.example.com"},
		DisableKeepAlives: true,
	}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+address+"/v1/orders", strings.NewReader(programtest.Tea))
	require.NoError(t, err)
	request.Header = http.Header{"Authorization": {"Bearer " + f.APIKey}, "Content-Type": {"application/json"}, "Idempotency-Key": {"an-order-over-tls"}}
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusCreated, response.StatusCode)
	requireProblem(t, exchange(t, address, "", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"), "malformed-request", "unknown") // without TLS
	a.Stop()
}

// Two processes are restarted in turn while clients send orders. On a busy machine, a process that stops resets a
// few connections that it has not accepted yet. Each such order is made by the same request with the same key.
func TestNginx_restarts(t *testing.T) {
	t.Parallel()
	f := labtest.NewFixture(t)
	addresses := []string{free(t), free(t)}
	serve := func(n int) *programtest.API {
		return f.Serve(f.With("LISTEN_ADDR="+addresses[n]), "--shutdown-delay", "2s")
	}
	processes := []*programtest.API{serve(0), serve(1)}
	client := &programtest.API{Base: "http://" + start(t, values{rate: 10_000, upstreams: addresses}), Key: f.APIKey}
	statuses := map[int]int{}
	var mu sync.Mutex
	stop := make(chan struct{})
	var clients errgroup.Group
	for c := range 8 {
		clients.Go(func() error {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return nil
				default:
				}
				key := fmt.Sprintf("an-order-of-client-%d-%d", c, n)
				got, err := client.Order(t.Context(), key)
				if err != nil {
					return err
				}
				mu.Lock()
				statuses[got.Status]++
				mu.Unlock()
				if _, err := labtest.UntilPaid(t.Context(), client, key); err != nil {
					return err
				}
			}
		})
	}
	for n := range 10 {
		processes[n%2].Stop()
		processes[n%2] = serve(n % 2)
	}
	close(stop)
	require.NoError(t, clients.Wait())
	t.Logf("responses during ten restarts, by status: %v", statuses)
	unavailable := statuses[http.StatusServiceUnavailable]
	require.Len(t, statuses, 1+min(unavailable, 1))
	require.Greater(t, statuses[http.StatusCreated], 100*unavailable)
	require.Empty(t, f.Stripe.OrdersChargedTwice())
}

// exchange sends text from a local address, "" for any, and returns what comes back until the connection is closed.
func exchange(t *testing.T, address, from, text string) string {
	t.Helper()
	dialer := net.Dialer{}
	if from != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	conn, err := dialer.DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(conn, text)
	require.NoError(t, err)
	response, _ := io.ReadAll(conn) // nginx resets connections that timed out
	return string(response)
}

// requireProblem requires the document that openapi.yaml and the problem's page describe.
func requireProblem(t *testing.T, text, slug, outcome string) {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), nil)
	require.NoError(t, err, text)
	defer response.Body.Close()
	var got struct {
		Type, Title, Detail, Retry, Outcome string
		Status                              int
		RequestID                           string `json:"request_id"`
	}
	require.NoError(t, json.NewDecoder(response.Body).Decode(&got), text)
	page, err := os.ReadFile(filepath.Join("..", "..", "api", "problems", slug+".md"))
	require.NoError(t, err)
	front := fmt.Sprintf("---\ntitle: %s\nstatus: %d\nretry: %s\n", got.Title, got.Status, got.Retry)
	require.True(t, strings.HasPrefix(string(page), front), "%s is not that of the page: %s", front, page)
	require.Equal(t, "/problems/"+slug, got.Type)
	require.Equal(t, got.Status, response.StatusCode)
	require.Equal(t, outcome, got.Outcome)
	require.Equal(t, outcome == "unknown" && got.Retry == "same-key", strings.Contains(got.Detail, "with the same key"), got.Detail)
	require.Equal(t, got.Retry == "same-key", response.Header.Get("Retry-After") != "")
	require.Equal(t, "application/problem+json", response.Header.Get("Content-Type"))
	require.Equal(t, "no-store", response.Header.Get("Cache-Control"))
	require.Regexp(t, "^[A-Za-z0-9._-]{8,64}$", got.RequestID)
	require.Equal(t, got.RequestID, response.Header.Get("X-Request-Id"))
}

func TestNginx_problems(t *testing.T) {
	t.Parallel()
	_, a := serve(t)
	address := start(t, values{rate: 100, upstreams: upstream(a)})
	const post = "POST /v1/orders HTTP/1.1\r\nHost: a\r\nIdempotency-Key: a-key-of-a-problem\r\n"
	large := strings.Repeat("x", 9000)
	for name, text := range map[string]string{
		"no request":           "garbage\r\n\r\n",
		"no host":              "GET / HTTP/1.1\r\n\r\n",
		"above the root":       "GET /v1/..%2F..%2F.. HTTP/1.1\r\nHost: a\r\n\r\n",
		"a long address":       "GET /" + large + " HTTP/1.1\r\nHost: a\r\n\r\n",
		"a long header":        post + "X: " + large + "\r\n\r\n",
		"two lengths":          post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
		"another encoding":     post + "Transfer-Encoding: gzip\r\n\r\n",
		"TRACE":                "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n",
		"another HTTP version": "GET / HTTP/3.0\r\nHost: a\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireProblem(t, exchange(t, address, "", text), "malformed-request", "unknown")
		})
	}
	t.Run("a large body", func(t *testing.T) {
		t.Parallel()
		requireProblem(t, exchange(t, address, "", post+"Connection: close\r\nContent-Length: 2000000\r\n\r\n"), "too-large", "unknown")
	})
	t.Run("no process", func(t *testing.T) {
		t.Parallel()
		address := start(t, values{rate: 100, upstreams: []string{free(t), free(t)}})
		requireProblem(t, exchange(t, address, "", post+"Connection: close\r\nContent-Length: 0\r\n\r\n"), "temporarily-unavailable", "unknown")
		requireProblem(t, exchange(t, address, "", "GET /v1/orders HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), "temporarily-unavailable", "none")
	})
	t.Run("many requests", func(t *testing.T) {
		t.Parallel()
		for from, request := range map[string]struct{ text, outcome string }{
			"127.0.0.2": {post + "Content-Length: 0\r\n", "unknown"},
			"127.0.0.3": {"GET /healthz HTTP/1.1\r\nHost: a\r\n", "none"},
		} {
			var clients sync.WaitGroup
			var rejected atomic.Int64
			for range 120 { // 100 of them wait
				clients.Go(func() {
					got := exchange(t, address, from, request.text+"Connection: close\r\n\r\n")
					if strings.HasPrefix(got, "HTTP/1.1 429 ") {
						rejected.Add(1)
						requireProblem(t, got, "rate-limited", request.outcome)
					}
				})
			}
			clients.Wait()
			require.Positive(t, rejected.Load())
		}
	})
	for name, text := range map[string]string{
		"a slow header": "GET / HTTP/1.1\r\nHost:",
		"a slow body":   post + "Content-Length: 10\r\n\r\n{",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Empty(t, exchange(t, address, "", text), "408 has no response")
		})
	}
	t.Run("another path", func(t *testing.T) {
		t.Parallel()
		require.Contains(t, exchange(t, address, "", "GET /nginx-rejects HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), "/problems/not-found")
	})
}

// Each response is one of openapi.yaml, through the proxy, too.
func TestNginx_contract(t *testing.T) {
	t.Parallel()
	const secret = "whsec_contract"
	a := labtest.StartDev(t, programtest.Environ(t, "STRIPE_WEBHOOK_SECRET="+secret))
	fuzz := exec.CommandContext(t.Context(), "go", "run", "./contractfuzz", "-specs", "..", "-requests", "5000", "-nginx",
		"-url", "http://"+start(t, values{rate: 10_000, upstreams: upstream(a)}), "-key", a.Key, "-webhook-secret", secret)
	fuzz.Dir = ".."
	report, err := fuzz.CombinedOutput()
	require.NoError(t, err, "%s", report)
	lines := strings.Split(strings.TrimSpace(string(report)), "\n")
	t.Log(lines[len(lines)-1])
}
