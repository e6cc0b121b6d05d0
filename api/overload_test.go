package api_test

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

func limiterBounds(permits, backlog int) func(*options) {
	return func(s *options) { s.permits, s.backlog = permits, backlog }
}

func (f *fixture) fillLimiter(t *testing.T, account uuid.UUID, n int) {
	t.Helper()
	before := f.limiter.Stats().InFlight
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	for range n {
		done.Go(func() {
			_ = f.limiter.Do(ctx, account, func(context.Context) error {
				<-ctx.Done()
				return nil
			})
		})
	}
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	require.Eventually(t, func() bool { return f.limiter.Stats().InFlight == before+n }, responseTimeout, time.Millisecond)
}

func requireRejected(t *testing.T, slug string, got response) {
	t.Helper()
	require.Equal(t, slug, got.problem(t).slug(), "%s", got.body)
	wait, err := strconv.Atoi(got.header.Get("Retry-After"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, wait, 1)
	require.LessOrEqual(t, wait, 3)
}

func TestOverload_oneAccount(t *testing.T) {
	t.Parallel()
	f := newFixture(t, limiterBounds(1, 10))
	order := f.createPaid(t)
	before := f.rowCounts(t)
	f.fillLimiter(t, uuid.New(), 2)
	f.fillLimiter(t, f.Account, 8)
	for path, content := range map[string]string{"/v1/orders": orderBody()} {
		for _, edits := range [][]requestEdit{nil, {prefer(respondAsync)}, {prefer("wait=30")}} {
			got := f.send(t, http.MethodPost, path, content, append(edits, header("Idempotency-Key", newKey()))...)
			requireRejected(t, "rate-limited", got)
		}
	}
	for _, path := range []string{order, "/v1/orders", keyPath(newKey())} {
		requireRejected(t, "rate-limited", f.get(t, path))
	}
	require.Equal(t, before, f.rowCounts(t))
	other := f.sendAsync(f.request(t, http.MethodGet, "/v1/orders", "", header("Authorization", "Bearer "+f.otherAccount(t))))
	require.Eventually(t, func() bool { return f.limiter.Stats().Backlog == 10 }, responseTimeout, time.Millisecond, "it waits")
	require.Empty(t, other)
}

func TestOverload_rejectionIsCheap(t *testing.T) {
	t.Parallel()
	f := newFixture(t, poolSize(1), limiterBounds(1, 1))
	f.fillLimiter(t, uuid.New(), 2)
	conn, err := f.Pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	got := f.create(t, newKey(), orderBody(), header("X-Request-Id", "rejected"))
	requireRejected(t, "temporarily-unavailable", got)
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
	f.fillLimiter(t, uuid.New(), 2)
	f.fillLimiter(t, f.Account, 8)
	requireRejected(t, "temporarily-unavailable", f.deliverEvent(t, "payment_intent.created"))
	requireRejected(t, "rate-limited", f.create(t, key, orderBody()))
	require.Equal(t, before, f.keyRows(t), "the key is unchanged")
}
