//go:build replication

package replication_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/lab/labtest"
)

// No process that has rejected orders for two seconds is ready (R30).
func TestReadiness_lag(t *testing.T) {
	const role = "serving"
	for name, fault := range map[string]struct {
		parameter  string // of DATABASE_URL
		begin, end []string
		hung       bool // the first of two hosts
	}{
		"read-only server": {
			begin: []string{"ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"},
			end:   []string{"ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()"},
		},
		"missing privilege": {
			parameter: "&role=" + role,
			begin:     []string{"REVOKE INSERT ON staged_jobs FROM " + role},
			end:       []string{"GRANT INSERT ON staged_jobs TO " + role},
		},
		"missing migration in the middle": {
			begin: []string{"ALTER TABLE staged_jobs RENAME TO not_created", "UPDATE goose_db_version SET is_applied = false WHERE version_id = 2"},
			end:   []string{"ALTER TABLE not_created RENAME TO staged_jobs", "UPDATE goose_db_version SET is_applied = true"},
		},
		"hung first host": {hung: true},
	} {
		t.Run(name, func(t *testing.T) {
			folder, err := os.MkdirTemp("/var/tmp", "orders-readiness-")
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
			require.NoError(t, os.Chmod(folder, 0o755))
			server, pool := (&pair{t: t}).startServer(folder)
			direct, err := url.Parse(server.URL("postgres"))
			require.NoError(t, err)
			first := newHost(t, direct.Host)
			served := *direct
			if fault.hung {
				served.Host = first.address + "," + direct.Host
			}
			f := labtest.NewFixtureOn(t, pool, direct.String())
			labtest.Run(t, f.Environ, "migrate", "up")
			f.CreateAccount()
			execute(t, pool, "CREATE ROLE "+role, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "+role)
			a := f.Serve(f.With("DATABASE_URL="+served.String()+"&connect_timeout=1"+fault.parameter), "--shutdown-delay", "0")

			w := watch(t, a)
			w.until(func(orders, ready []sample) bool { return last(orders).status == 201 && last(ready).status == 200 })
			began := time.Now()
			execute(t, pool, fault.begin...)
			first.hung.Store(fault.hung)
			// A hung host is left for the second one without an end of the fault.
			w.until(func(_, ready []sample) bool {
				return time.Since(began) > 5*time.Second && slices.ContainsFunc(ready, func(s sample) bool { return s.status == 503 })
			})
			execute(t, pool, fault.end...)
			w.until(func(orders, ready []sample) bool { return last(orders).status == 201 && last(ready).status == 200 })
			orders, ready := w.stop()
			lag := readyWhileRejecting(orders, ready)
			t.Logf("%s: ready for %s while orders were rejected; orders: %v, probes: %v",
				name, lag.Round(time.Millisecond), byStatus(orders), byStatus(ready))
			require.Less(t, lag, 2*time.Second)
			a.Stop()
		})
	}
}

func execute(t *testing.T, pool *pgxpool.Pool, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		_, err := pool.Exec(t.Context(), statement)
		require.NoError(t, err, statement)
	}
}

type sample struct {
	sent, received time.Time
	status         int
}

func last(samples []sample) sample {
	if len(samples) == 0 {
		return sample{}
	}
	return samples[len(samples)-1]
}

func byStatus(samples []sample) map[int]int {
	counts := map[int]int{}
	for _, s := range samples {
		counts[s.status]++
	}
	return counts
}

// readyWhileRejecting returns the longest time in which each probe said ready, and each order that
// was sent in it was rejected.
func readyWhileRejecting(orders, ready []sample) (longest time.Duration) {
	for i, first := range ready {
		for _, probe := range ready[i:] {
			if probe.status != http.StatusOK {
				break
			}
			within := slices.DeleteFunc(slices.Clone(orders), func(o sample) bool {
				return o.sent.Before(first.received) || o.sent.After(probe.received)
			})
			if slices.ContainsFunc(within, func(o sample) bool { return o.status < http.StatusInternalServerError }) {
				break
			}
			if len(within) > 0 {
				longest = max(longest, probe.received.Sub(first.received))
			}
		}
	}
	return longest
}

// watcher sends orders, and probes /readyz, twenty times a second.
type watcher struct {
	t      *testing.T
	cancel context.CancelFunc
	group  errgroup.Group
	mu     sync.Mutex
	orders []sample
	ready  []sample
}

func watch(t *testing.T, a *programtest.API) *watcher {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watcher{t: t, cancel: cancel}
	var orders atomic.Int64
	repeat := func(samples *[]sample, send func() (programtest.Response, error)) {
		for ticker := time.NewTicker(50 * time.Millisecond); ctx.Err() == nil; <-ticker.C {
			w.group.Go(func() error {
				sent := time.Now()
				got, err := send()
				if err != nil {
					return err
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				*samples = append(*samples, sample{sent, time.Now(), got.Status})
				return nil
			})
		}
	}
	w.group.Go(func() error {
		repeat(&w.orders, func() (programtest.Response, error) {
			return a.Order(context.Background(), fmt.Sprintf("watched-order-%06d", orders.Add(1)))
		})
		return nil
	})
	w.group.Go(func() error {
		repeat(&w.ready, func() (programtest.Response, error) {
			return a.Do(context.Background(), http.MethodGet, "/readyz", "", nil)
		})
		return nil
	})
	return w
}

func (w *watcher) until(done func(orders, ready []sample) bool) {
	w.t.Helper()
	programtest.Eventually(w.t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return done(w.orders, w.ready)
	})
}

// stop returns the orders by the time at which they were answered.
func (w *watcher) stop() (orders, ready []sample) {
	w.cancel()
	require.NoError(w.t, w.group.Wait())
	return w.orders, w.ready
}

// host forwards connections until it hangs: then it neither forwards nor closes anything.
type host struct {
	address string
	hung    atomic.Bool
}

func newHost(t *testing.T, target string) *host {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	h := &host{address: listener.Addr().String()}
	forward := func(to, from net.Conn) {
		buffer := make([]byte, 64<<10)
		for {
			n, err := from.Read(buffer)
			if h.hung.Load() {
				return
			}
			if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
				_ = to.Close()
				return
			}
		}
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = client.Close() })
			if h.hung.Load() {
				continue
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				return
			}
			go forward(server, client)
			go forward(client, server)
		}
	}()
	return h
}
