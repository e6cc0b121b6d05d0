//go:build nginx

package program_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/lab/labtest"
)

// A URI in proxy_pass makes nginx decode each path and encode it again.
const nginxConfig = `daemon off;
user root;
worker_processes 1;
worker_rlimit_nofile 16384;
pid nginx.pid;
error_log error.log;
events { worker_connections 16000; }
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    upstream orders { %s keepalive 32; }
    server {
        listen %s backlog=8192;
        location /v1/ {
            proxy_pass http://orders/v1/;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_read_timeout 120s;
        }
    }
}
`

// free returns an address that is free now, and that of each later restart.
func free(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().String()
}

// startNginx returns its address.
func startNginx(t *testing.T, upstreams ...string) string {
	t.Helper()
	prefix, err := os.MkdirTemp("", "nginx-")
	require.NoError(t, err)
	address, servers := free(t), ""
	for _, upstream := range upstreams {
		servers += "server " + upstream + " max_fails=0; " // otherwise it is left out for ten seconds, also after a restart
	}
	config := filepath.Join(prefix, "nginx.conf")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, nginxConfig, servers, address), 0o600))
	nginx := exec.CommandContext(context.WithoutCancel(t.Context()), "nginx", "-p", prefix, "-c", config, "-e", "error.log")
	require.NoError(t, nginx.Start())
	t.Cleanup(func() {
		require.NoError(t, nginx.Process.Signal(syscall.SIGTERM))
		require.NoError(t, nginx.Wait())
		require.NoError(t, os.RemoveAll(prefix))
	})
	for {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err == nil {
			require.NoError(t, conn.Close())
			return address
		}
		require.NoError(t, t.Context().Err())
	}
}

func TestNginx_location(t *testing.T) {
	t.Parallel()
	f := labtest.NewFixture(t)
	a := f.Serve(f.With("LISTEN_ADDR=127.0.0.1:0"), "--shutdown-delay", "0")
	a.Base = "http://" + startNginx(t, strings.TrimPrefix(a.Base, "http://"))
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

// Two processes are restarted in turn while clients send orders.
func TestNginx_restarts(t *testing.T) {
	t.Parallel()
	f := labtest.NewFixture(t)
	addresses := []string{free(t), free(t)}
	serve := func(n int) *programtest.API {
		return f.Serve(f.With("LISTEN_ADDR="+addresses[n]), "--shutdown-delay", "2s")
	}
	processes := []*programtest.API{serve(0), serve(1)}
	client := &programtest.API{Base: "http://" + startNginx(t, addresses...), Key: f.APIKey}
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
				got, err := client.Order(t.Context(), fmt.Sprintf("an-order-of-client-%d-%d", c, n))
				if err != nil {
					return err
				}
				mu.Lock()
				statuses[got.Status]++
				mu.Unlock()
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
	require.Equal(t, []int{http.StatusCreated}, keys(statuses))
	require.Empty(t, f.Stripe.OrdersChargedTwice())
}

func keys(m map[int]int) (list []int) {
	for key := range m {
		list = append(list, key)
	}
	return list
}

// One account has more connections to the proxy than a process allows.
func TestNginx_connections(t *testing.T) {
	f := labtest.NewFixture(t)
	a := f.Serve(f.With("LISTEN_ADDR=127.0.0.1:0"), "--shutdown-delay", "0")
	backend := strings.TrimPrefix(a.Base, "http://")
	address := startNginx(t, backend)
	a.Base = "http://" + address
	const connections = 4100
	request := "GET /v1/orders?limit=1 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + f.APIKey + "\r\n\r\n"
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var held sync.WaitGroup
	open := make(chan error, connections)
	limit := make(chan struct{}, 64) // of dials at once
	for range connections {
		held.Go(func() {
			limit <- struct{}{}
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			<-limit
			if err != nil {
				open <- err
				return
			}
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			go func() { _, _ = io.Copy(io.Discard, conn) }()
			ticker := time.NewTicker(10 * time.Second) // 410 requests a second
			defer ticker.Stop()
			for first := true; ; first = false {
				_, err := io.WriteString(conn, request)
				if first {
					open <- err
				}
				select {
				case <-ticker.C:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	for range connections {
		require.NoError(t, <-open)
	}
	words := strings.Fields(labtest.Run(t, f.Environ, "accounts", "create", "--name", "Another"))
	other := &programtest.API{Base: a.Base, Key: words[len(words)-1]}
	slowest, most, orders := time.Duration(0), 0, 0
	for start := time.Now(); time.Since(start) < 20*time.Second; orders++ {
		began := time.Now()
		got, err := other.Order(t.Context(), fmt.Sprintf("an-order-of-another-%d", orders))
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, got.Status, got.Body)
		slowest, most = max(slowest, time.Since(began)), max(most, established(t, backend))
	}
	t.Logf("%d connections of one account at nginx, at most %d at the API; %d orders of another account, the slowest in %s",
		established(t, address), most, orders, slowest.Round(time.Millisecond))
	require.Less(t, most, 1000)
	stop()
	held.Wait()
	a.Stop()
}

// established counts the connections that a server has.
func established(t *testing.T, address string) (n int) {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	table, err := os.ReadFile("/proc/net/tcp") // of 127.0.0.1
	require.NoError(t, err)
	for line := range strings.Lines(string(table)) {
		columns := strings.Fields(line)
		if local, state := columns[1], columns[3]; state == "01" && strings.HasSuffix(local, fmt.Sprintf(":%04X", number)) {
			n++
		}
	}
	return n
}
