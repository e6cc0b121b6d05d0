package events_test

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/internal/jobs"
)

// silentEndpoints accepts connections and never responds.
func silentEndpoints(t *testing.T) (url string, connections *atomic.Int64, end func()) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	connections = &atomic.Int64{}
	ctx, end := context.WithCancel(context.Background())
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	t.Cleanup(end)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			context.AfterFunc(ctx, func() { _ = conn.Close() })
		}
	}()
	return "http://" + listener.Addr().String(), connections, end
}

// A thousand accounts whose endpoints do not respond delay neither receipts nor the events of another
// account: at most by one attempt when all of them fail for the first time, and not at all afterwards.
func TestDeliver_deadEndpoints(t *testing.T) {
	t.Parallel()
	const dead = 1000
	f := newFixture(t)
	arrived := make(chan time.Time, 1)
	endpoint := newShop(t, func(http.ResponseWriter, *http.Request) { arrived <- time.Now() })
	f.set(endpoint.URL)
	url, connections, end := silentEndpoints(t)
	f.exec("INSERT INTO accounts (id, name) SELECT gen_random_uuid(), 'dead' FROM generate_series(1, $1::int)", dead)
	f.exec(`
INSERT INTO event_endpoints (account_id, id, url, key_fingerprint)
SELECT a.id, gen_random_uuid(), $1, e.key_fingerprint
  FROM accounts AS a,
       event_endpoints AS e
 WHERE a.name = 'dead'`, url)
	f.exec(`
INSERT INTO staged_jobs (account_id, id, kind, args)
SELECT id, gen_random_uuid(), 'event', '{"type":"order.paid","order_id":"an order"}'
  FROM accounts,
       generate_series(1, 3)
 WHERE name = 'dead'`)

	receipts := *f.workers(firstKey)[0] // with another kind, as its own loop of the worker
	receipts.Kind, receipts.Due = "receipt", ""
	receipts.Do = func(context.Context, jobs.Job) error { arrived <- time.Now(); return nil }
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var loops errgroup.Group
	for _, w := range append(f.workers(firstKey), &receipts) {
		loops.Go(func() error {
			for ctx.Err() == nil {
				if err := w.Pass(ctx); err != nil {
					return err
				}
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
			}
			return nil
		})
	}
	delay := func(stage func()) time.Duration {
		t.Helper()
		staged := time.Now()
		stage()
		select {
		case at := <-arrived:
			return at.Sub(staged).Round(time.Millisecond)
		case <-time.After(time.Minute):
			require.FailNow(t, "not delivered within a minute")
			return 0
		}
	}
	event := func() { f.stagePaid(f.account, 1) }
	receipt := func() {
		f.exec("INSERT INTO staged_jobs (account_id, id, kind, args) VALUES ($1, $2, 'receipt', '{}')", f.account, uuid.New())
	}
	require.Eventually(t, func() bool { return connections.Load() >= dead/2 }, time.Minute, 10*time.Millisecond)
	t.Logf("with %d endpoints that fail for the first time: receipt after %s, event after %s", dead, delay(receipt), delay(event))
	failing := func() bool {
		var n int
		require.NoError(t, f.pool.QueryRow(t.Context(), "SELECT count(*) FROM event_endpoints WHERE attempt > 0").Scan(&n))
		return n == dead
	}
	require.Eventually(t, failing, 5*time.Minute, 100*time.Millisecond)
	t.Logf("with %d endpoints that fail: receipt after %s, event after %s", dead, delay(receipt), delay(event))
	stop()
	end()
	require.NoError(t, loops.Wait())
	require.Zero(t, f.strings("SELECT count(*)::text FROM event_endpoints WHERE disabled_at IS NOT NULL")[0][0]-'0')
}
