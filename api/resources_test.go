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
	order := f.createPaid(t)
	f.Pool.Close()
	for _, got := range []response{f.create(t, newKey(), orderBody()), f.get(t, order), f.get(t, "/v1/orders")} {
		require.Equal(t, "temporarily-unavailable", got.problem(t).slug())
	}
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
	}, stepTimeout, time.Millisecond)
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

// A rejection is cheap: it neither uses the key nor waits for a connection.
func TestOverload_everyRoute(t *testing.T) {
	t.Parallel()
	f := newFixture(t, poolSize(1), limiterBounds(1, 10))
	order, interrupted := f.createPaid(t), newKey()
	f.Stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: confirmEndpoint})
	require.Equal(t, http.StatusServiceUnavailable, f.create(t, interrupted, orderBody()).status)
	payload, signature := f.signedEvent(t, "payment_intent.created")
	before := f.keyRows(t)
	f.fillLimiter(t, 11)
	conn, err := f.Pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	for _, edits := range [][]requestEdit{nil, {prefer(respondAsync)}, {prefer("wait=30")}} {
		requireRejected(t, f.create(t, newKey(), orderBody(), edits...))
	}
	for _, path := range []string{order, "/v1/orders", keyPath(newKey())} {
		requireRejected(t, f.get(t, path))
	}
	requireRejected(t, f.deliver(t, payload, signature))
	requireRejected(t, f.create(t, interrupted, orderBody(), header("X-Request-Id", "rejected")))
	require.Equal(t, "WARN", f.log.await(t, map[string]any{"request_id": "rejected"})["level"])
	conn.Release()
	require.Equal(t, before, f.keyRows(t))
}

// An increase needs a reason, because each order and each retry pays for it.
func TestCost_request(t *testing.T) {
	t.Parallel()
	wire := &idempotencytest.Wire{}
	f := newFixture(t, poolSize(1), func(s *options) { s.pool = append(s.pool, wire.Configure) })
	key := newKey()
	require.Equal(t, http.StatusCreated, f.create(t, key, orderBody()).status)
	f.expireAPIKeys()
	for _, test := range []struct {
		name, key, body, apiKey string
		status                  int
		roundTrips, commits     int
	}{
		{"with the lookup of the API key", newKey(), orderBody(), f.apiKey, http.StatusCreated, 5, 3},
		{"an order", newKey(), orderBody(), f.apiKey, http.StatusCreated, 4, 3},
		{"a replay", key, orderBody(), f.apiKey, http.StatusCreated, 1, 0},
		{"rejected before the lookup of the key", newKey(), "[]", f.apiKey, http.StatusBadRequest, 0, 0},
		{"a malformed API key", newKey(), orderBody(), "nonsense", http.StatusUnauthorized, 0, 0},
	} {
		wire.Reset()
		got := f.create(t, test.key, test.body, header("Authorization", "Bearer "+test.apiKey))
		require.Equal(t, test.status, got.status, test.name)
		require.Equal(t, []int{test.roundTrips, test.commits}, []int{wire.RoundTrips(), wire.Commits()}, test.name)
	}
}
