package api_test

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

func limiterBounds(permits, backlog int) func(*options) {
	return func(s *options) { s.permits, s.backlog = permits, backlog }
}

func (f *fixture) fillLimiter(t *testing.T, n int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	for range n {
		done.Go(func() {
			_ = f.limiter.Do(ctx, func(context.Context) error {
				<-ctx.Done()
				return nil
			})
		})
	}
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	require.Eventually(t, func() bool {
		stats := f.limiter.Stats()
		return stats.Running+stats.Backlog == n
	}, responseTimeout, time.Millisecond)
}

func requireRejected(t *testing.T, got response) {
	t.Helper()
	require.Equal(t, http.StatusServiceUnavailable, got.status)
	require.Equal(t, "temporarily-unavailable", got.problem(t).slug(), "%s", got.body)
	wait, err := strconv.Atoi(got.header.Get("Retry-After"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, wait, 1)
	require.LessOrEqual(t, wait, 3)
}

func TestOverload_everyRoute(t *testing.T) {
	t.Parallel()
	f := newFixture(t, limiterBounds(1, 10))
	order := f.createPaid(t)
	before := f.rowCounts(t)
	f.fillLimiter(t, 11)
	for _, edits := range [][]requestEdit{nil, {prefer(respondAsync)}, {prefer("wait=30")}} {
		requireRejected(t, f.create(t, newKey(), orderBody(), edits...))
	}
	for _, path := range []string{order, "/v1/orders", keyPath(newKey())} {
		requireRejected(t, f.get(t, path))
	}
	require.Equal(t, before, f.rowCounts(t))
}

func TestOverload_rejectionIsCheap(t *testing.T) {
	t.Parallel()
	f := newFixture(t, poolSize(1), limiterBounds(1, 1))
	f.fillLimiter(t, 2)
	conn, err := f.Pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	got := f.create(t, newKey(), orderBody(), header("X-Request-Id", "rejected"))
	requireRejected(t, got)
	conn.Release()
	require.Zero(t, f.rowCounts(t)["idempotency_keys"])
	require.Equal(t, "WARN", f.log.await(t, map[string]any{"request_id": "rejected"})["level"])
}

func TestOverload_webhook(t *testing.T) {
	t.Parallel()
	f := newFixture(t, limiterBounds(1, 10))
	key := newKey()
	f.Stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: confirmEndpoint})
	require.Equal(t, http.StatusServiceUnavailable, f.create(t, key, orderBody()).status)
	before := f.keyRows(t)
	f.fillLimiter(t, 11)
	requireRejected(t, f.deliverEvent(t, "payment_intent.created"))
	requireRejected(t, f.create(t, key, orderBody()))
	require.Equal(t, before, f.keyRows(t), "the key is unchanged")
}
