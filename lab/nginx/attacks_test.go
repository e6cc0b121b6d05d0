//go:build nginx

package nginx_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/lab/labtest"
	"example.com/orders-api/lab/measure"
)

const window = 8 * time.Second

// Another client, within the limit of its own key, keeps four fifths of its rate during each attack, and the
// process stays ready. Outsiders have addresses of their own, because nginx knows the shop's backends by
// their address.
func TestNginx_attacks(t *testing.T) {
	f, a := serve(t)
	_, capacity := created(t, a.Base, f.APIKey, func(send measure.Send) measure.Report {
		return measure.Closed(t.Context(), 16, 4*time.Second, send)
	})
	rate := int(0.4 * capacity) // what shop.conf says about the rate of a key
	address := start(t, values{rate: rate, upstreams: upstream(a)})
	words := strings.Fields(labtest.Run(t, f.Environ, "accounts", "create", "--name", "Flood"))
	floods := measure.NewClient(address, words[len(words)-1])
	defer floods.Close()

	offered := 0.8 * float64(rate)
	for name, attack := range map[string]struct {
		connections int
		do          func(ctx context.Context, n int)
	}{
		"idle connections": {4100, func(ctx context.Context, n int) { trickle(ctx, address, n, "") }},
		"slow headers":     {2000, func(ctx context.Context, n int) { trickle(ctx, address, n, "GET /v1/orders HTTP/1.1\r\nX: ") }},
		"slow bodies": {2000, func(ctx context.Context, n int) {
			trickle(ctx, address, n, "POST /v1/orders HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n"+
				"Idempotency-Key: "+rand.Text()+"\r\nAuthorization: Bearer ok_"+rand.Text()+"\r\n\r\n")
		}},
		"random keys": {64, func(ctx context.Context, n int) { guess(ctx, address, n) }},
		"one client floods": {1000, func(ctx context.Context, n int) {
			_, _ = floods.CreateOrder("flood-"+rand.Text(), []byte(programtest.Tea))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			var attackers sync.WaitGroup
			for n := range attack.connections {
				attackers.Go(func() {
					for ctx.Err() == nil {
						attack.do(ctx, n)
					}
				})
			}
			attackers.Go(func() {
				for ctx.Err() == nil {
					if status := a.Ready(); status != http.StatusOK && ctx.Err() == nil {
						t.Errorf("/readyz: %d", status)
					}
					pause(ctx, 100*time.Millisecond)
				}
			})
			statuses, got := created(t, "http://"+address, f.APIKey, func(send measure.Send) measure.Report {
				return measure.Open(t.Context(), offered, window, 5000, send).EndedWithin(time.Second, window-time.Second)
			})
			stop()
			attackers.Wait()
			t.Logf("%.0f orders a second of %.0f, statuses %v", got, offered, statuses)
			require.Greater(t, got, 0.8*offered)
		})
	}
	a.Stop()
	require.Empty(t, f.Stripe.OrdersChargedTwice())
}

// created sends orders with the keys of one client, and returns its rate of 201.
func created(t *testing.T, base, apiKey string, load func(measure.Send) measure.Report) (map[int]int, float64) {
	t.Helper()
	client := measure.NewClient(strings.TrimPrefix(base, "http://"), apiKey)
	defer client.Close()
	run := rand.Text()
	report := load(func(_ context.Context, i int) (int, error) {
		got, err := client.CreateOrder(fmt.Sprint(run, "-", i), []byte(programtest.Tea))
		return got.Status, err
	})
	return report.Statuses(), report.WithStatus(http.StatusCreated).Rate()
}

// dial connects from the n-th of 100 addresses.
func dial(ctx context.Context, address string, n int) (net.Conn, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+n%100))}}
	return dialer.DialContext(ctx, "tcp", address)
}

// trickle sends the beginning of a request and then, unless it is empty, a byte a second until nginx closes the
// connection.
func trickle(ctx context.Context, address string, n int, begin string) {
	conn, err := dial(ctx, address, n)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_, err = io.WriteString(conn, begin)
	if begin == "" {
		_, err = conn.Read(make([]byte, 1))
	}
	for err == nil {
		pause(ctx, time.Second)
		_, err = io.WriteString(conn, " ")
	}
}

// guess sends requests with well-formed API keys as fast as they are answered.
func guess(ctx context.Context, address string, n int) {
	conn, err := dial(ctx, address, n)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	response := make([]byte, 4<<10)
	for err == nil {
		if _, err = fmt.Fprintf(conn, "GET /v1/orders HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ok_%s\r\n\r\n", rand.Text()); err == nil {
			_, err = conn.Read(response)
		}
	}
}

func pause(ctx context.Context, duration time.Duration) {
	select {
	case <-time.After(duration):
	case <-ctx.Done():
	}
}
