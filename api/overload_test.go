package api_test

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

func limiterBounds(work, backlog int) func(*options) {
	return func(s *options) { s.work, s.backlog = work, backlog }
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

func TestOverload_backlogIsFull(t *testing.T) {
	t.Parallel()
	const work, backlog, requests = 1, 5, 10 // few enough for fast rejections
	const admitted = work + 4                // one account gets four fifths of the backlog
	f := newFixture(t, poolSize(4), limiterBounds(work, backlog), func(s *options) {
		s.pool = append(s.pool, func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams["lock_timeout"] = "0" })
	})
	require.Equal(t, http.StatusCreated, f.create(t, newKey(), orderBody()).status)
	conn, err := pgx.ConnectConfig(t.Context(), f.pool.Config().ConnConfig)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	blocking, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = blocking.Exec(t.Context(), "SET LOCAL idle_in_transaction_session_timeout = 0; LOCK TABLE orders IN SHARE MODE")
	require.NoError(t, err)
	keys, finished := make([]string, requests), make(chan response)
	for i := range keys {
		keys[i] = newKey()
		waiting := f.createAsync(t, keys[i], orderBody())
		go func() { finished <- (<-waiting).response }()
	}
	for range requests - admitted {
		requireRejected(t, "temporarily-unavailable", <-finished)
	}
	require.Equal(t, 1, f.rowCounts(t)["orders"])
	require.Equal(t, http.StatusOK, f.get(t, "/healthz").status)
	require.Equal(t, http.StatusOK, f.get(t, "/readyz").status)

	require.NoError(t, blocking.Rollback(t.Context()))
	for range admitted {
		require.Equal(t, http.StatusCreated, (<-finished).status)
	}
	for _, key := range keys {
		got := f.create(t, key, orderBody())
		require.Equal(t, http.StatusCreated, got.status, "%s", got.body)
	}
	require.Equal(t, 1+requests, f.rowCounts(t)["orders"])
	require.Len(t, f.stripe.Charges(), 1+requests)
	require.Empty(t, f.stripe.OrdersChargedTwice())
}

// An account that has its share gets 429, while other accounts are served.
func TestOverload_oneAccount(t *testing.T) {
	t.Parallel()
	f := newFixture(t, limiterBounds(1, 10))
	order := f.createPaid(t)
	before := f.rowCounts(t)
	f.fillLimiter(t, uuid.New(), 2) // the permit, and a place in the backlog
	f.fillLimiter(t, f.account, 8)
	for path, content := range map[string]string{"/v1/orders": orderBody(), order + "/refunds": `{"amount":100}`} {
		for _, edits := range [][]requestEdit{nil, {prefer(respondAsync)}, {prefer("wait=30")}} {
			got := f.send(t, http.MethodPost, path, content, append(edits, header("Idempotency-Key", newKey()))...)
			requireRejected(t, "rate-limited", got)
		}
	}
	for _, path := range []string{order, "/v1/orders", order + "/refunds", order + "/refunds/" + uuid.NewString(), keyPath(newKey())} {
		requireRejected(t, "rate-limited", f.get(t, path))
	}
	require.Equal(t, before, f.rowCounts(t))
	other := f.sendAsync(f.request(t, http.MethodGet, "/v1/orders", "", header("Authorization", "Bearer "+f.otherAccount(t))))
	require.Eventually(t, func() bool { return f.limiter.Stats().Backlog == 10 }, responseTimeout, time.Millisecond, "it waits")
	require.Empty(t, other)
}

// A rejection takes no connection and is not logged as an error (R25). Requests that are
// rejected together get different values of Retry-After.
func TestOverload_rejectionIsCheap(t *testing.T) {
	t.Parallel()
	f := newFixture(t, poolSize(1), limiterBounds(1, 1))
	f.fillLimiter(t, uuid.New(), 2)
	conn, err := f.pool.Acquire(t.Context()) // a rejection needs none
	require.NoError(t, err)
	defer conn.Release()
	got := f.create(t, newKey(), orderBody(), header("X-Request-Id", "rejected"))
	requireRejected(t, "temporarily-unavailable", got)
	require.Equal(t, "WARN", f.log.await(t, map[string]any{"request_id": "rejected"})["level"])
	waits := map[string]bool{}
	for n := 0; len(waits) < 2; n++ {
		require.Less(t, n, 40) // otherwise a chance of 1 in 3^39
		waits[f.create(t, newKey(), orderBody()).header.Get("Retry-After")] = true
	}
	require.Equal(t, http.StatusUnauthorized, f.get(t, "/v1/orders", header("Authorization", "Bearer nonsense")).status)
	require.Equal(t, http.StatusOK, f.get(t, "/problems/rate-limited").status)
}

// A rejected webhook gets 503, so that the provider repeats it.
func TestOverload_webhook(t *testing.T) {
	t.Parallel()
	f := newFixture(t, limiterBounds(1, 10))
	key := newKey()
	f.stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: confirmEndpoint})
	require.Equal(t, http.StatusServiceUnavailable, f.create(t, key, orderBody()).status)
	before := f.keyRows(t)
	f.fillLimiter(t, uuid.New(), 2)
	f.fillLimiter(t, f.account, 8)
	requireRejected(t, "temporarily-unavailable", f.deliverEvent(t, "payment_intent.created"))
	requireRejected(t, "rate-limited", f.create(t, key, orderBody()))
	require.Equal(t, before, f.keyRows(t), "the key is unchanged")
}

// awaitReadyz repeats the probe, because a result is used for a second.
func (f *fixture) awaitReadyz(t *testing.T, status int, edits ...requestEdit) (got response) {
	t.Helper()
	require.Eventually(t, func() bool {
		got = f.get(t, "/readyz", edits...)
		return got.status == status
	}, responseTimeout, 20*time.Millisecond)
	return got
}
