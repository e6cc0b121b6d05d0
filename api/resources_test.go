package api_test

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/payments/stripetest"
)

func TestDatabase_down(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order, key := f.createPaid(t), newKey()
	f.Pool.Close()
	for _, got := range []response{
		f.create(t, key, orderBody()), f.create(t, key, orderBody(), prefer(respondAsync)), f.getKey(t, key),
		f.get(t, order), f.get(t, "/v1/orders"),
	} {
		require.Equal(t, "temporarily-unavailable", got.problem(t).slug())
		require.Equal(t, "2", got.header.Get("Retry-After"))
		line := f.log.await(t, map[string]any{"request_id": got.header.Get("X-Request-Id")})
		require.Equal(t, "WARN", line["level"])
	}
	require.Equal(t, http.StatusOK, f.get(t, "/healthz").status)
	f.expireAPIKeys()
	require.Equal(t, "temporarily-unavailable", f.get(t, order).problem(t).slug(), "the API key is not rejected")
}

func poolSize(size int32) func(*options) {
	return func(s *options) {
		s.pool = append(s.pool, func(config *pgxpool.Config) { config.MaxConns = size })
	}
}

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
	order, interrupted := f.createPaid(t), newKey()
	f.Stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: confirmEndpoint})
	require.Equal(t, http.StatusServiceUnavailable, f.create(t, interrupted, orderBody()).status)
	before := f.keyRows(t)
	f.fillLimiter(t, 11)
	for _, edits := range [][]requestEdit{nil, {prefer(respondAsync)}, {prefer("wait=30")}} {
		requireRejected(t, f.create(t, newKey(), orderBody(), edits...))
	}
	for _, path := range []string{order, "/v1/orders", keyPath(newKey())} {
		requireRejected(t, f.get(t, path))
	}
	requireRejected(t, f.deliverEvent(t, "payment_intent.created"))
	requireRejected(t, f.create(t, interrupted, orderBody()))
	require.Equal(t, before, f.keyRows(t))
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

func TestCost_request(t *testing.T) {
	t.Parallel()
	wire := &idempotencytest.Wire{}
	f := newFixture(t, poolSize(1), func(s *options) { s.pool = append(s.pool, wire.Configure) })
	key := newKey()
	cost := func(send func() response, status int) (roundTrips, commits int) {
		wire.Reset()
		require.Equal(t, status, send().status)
		return wire.RoundTrips(), wire.Commits()
	}
	order := func() response { return f.create(t, newKey(), orderBody()) }
	cost(order, http.StatusCreated)

	roundTrips, commits := cost(order, http.StatusCreated)
	require.Equal(t, 4, roundTrips)
	require.Equal(t, 3, commits)

	f.expireAPIKeys()
	roundTrips, commits = cost(order, http.StatusCreated)
	require.Equal(t, 5, roundTrips, "with the lookup of the API key")
	require.Equal(t, 3, commits)

	cost(func() response { return f.create(t, key, orderBody()) }, http.StatusCreated)
	roundTrips, commits = cost(func() response { return f.create(t, key, orderBody()) }, http.StatusCreated)
	require.Equal(t, 1, roundTrips, "a replay")
	require.Equal(t, 0, commits)

	roundTrips, _ = cost(func() response { return f.create(t, newKey(), "[]") }, http.StatusBadRequest)
	require.Equal(t, 0, roundTrips, "rejected before the lookup of the key")

	malformed := func() response { return f.create(t, newKey(), orderBody(), header("Authorization", "Bearer nonsense")) }
	roundTrips, _ = cost(malformed, http.StatusUnauthorized)
	require.Equal(t, 0, roundTrips, "a malformed API key")
}
