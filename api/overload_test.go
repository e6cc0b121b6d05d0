package api_test

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

// admit sets the bounds of an app's limiter.
func admit(work, backlog int) func(*settings) {
	return func(s *settings) { s.work, s.backlog = work, backlog }
}

// occupy takes permits of the limiter, or places in its backlog, until the test ends.
func (a *app) occupy(t *testing.T, account uuid.UUID, n int) {
	t.Helper()
	before := a.limiter.Stats().InFlight
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	for range n {
		done.Go(func() {
			_ = a.limiter.Do(ctx, account, func(context.Context) error {
				<-ctx.Done()
				return nil
			})
		})
	}
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	require.Eventually(t, func() bool { return a.limiter.Stats().InFlight == before+n }, patience, time.Millisecond)
}

// requireRejected checks a rejection, after which the client may come back.
func requireRejected(t *testing.T, slug string, got answer) {
	t.Helper()
	require.Equal(t, slug, got.problem(t).slug(), "%s", got.body)
	wait, err := strconv.Atoi(got.header.Get("Retry-After"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, wait, 1)
	require.LessOrEqual(t, wait, 3)
}

// Requests beyond the backlog are rejected while the others wait, and leave no row.
// The others are served.
func TestOverload_backlogIsFull(t *testing.T) {
	t.Parallel()
	const work, backlog, requests = 1, 5, 20
	const admitted = work + 4 // one account gets four fifths of the backlog
	a := start(t, poolOf(4), admit(work, backlog), func(s *settings) {
		s.pool = append(s.pool, func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams["lock_timeout"] = "0" })
	})
	require.Equal(t, http.StatusCreated, a.create(t, newKey(), body()).status)
	conn, err := pgx.ConnectConfig(t.Context(), a.pool.Config().ConnConfig)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	blocking, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = blocking.Exec(t.Context(), "LOCK TABLE orders IN SHARE MODE")
	require.NoError(t, err)
	keys, finished := make([]string, requests), make(chan answer)
	for i := range keys {
		keys[i] = newKey()
		waiting := a.createAsync(t, keys[i], body())
		go func() { finished <- (<-waiting).answer }()
	}
	for range requests - admitted {
		requireRejected(t, "temporarily-unavailable", <-finished)
	}
	require.Equal(t, 1, a.rows(t)["orders"])
	require.Equal(t, http.StatusOK, a.get(t, "/healthz").status)
	require.Equal(t, http.StatusOK, a.get(t, "/readyz").status)

	require.NoError(t, blocking.Rollback(t.Context()))
	for range admitted {
		require.Equal(t, http.StatusCreated, (<-finished).status)
	}
	for _, key := range keys {
		got := a.create(t, key, body())
		require.Equal(t, http.StatusCreated, got.status, "%s", got.body)
	}
	require.Equal(t, 1+requests, a.rows(t)["orders"])
	require.Len(t, a.stripe.Charges(), 1+requests)
	require.Empty(t, a.stripe.OrdersChargedTwice())
}

// Orders that wait for the provider hold no permit: one is enough for all of them,
// and for others meanwhile.
func TestOverload_slowProvider(t *testing.T) {
	t.Parallel()
	a := start(t, poolOf(1), admit(1, 100))
	held := a.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint, Times: 8})
	running := make([]<-chan outcome, 8)
	for i := range running {
		running[i] = a.createAsync(t, newKey(), body())
		require.Eventually(t, func() bool { return held.Struck() > i }, patience, time.Millisecond)
	}
	require.Equal(t, http.StatusCreated, a.create(t, newKey(), body()).status)
	held.Release()
	for _, done := range running {
		require.Equal(t, http.StatusCreated, (<-done).status)
	}
}

// A request that waits for another run holds no permit, either.
func TestOverload_waiters(t *testing.T) {
	t.Parallel()
	a := start(t, poolOf(1), admit(1, 100))
	key := newKey()
	held := a.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	first := a.createAsync(t, key, body())
	<-held.Reached()
	duplicate := a.createAsync(t, key, body(), prefer("wait=30"))
	status := a.sendAsync(a.request(t, http.MethodGet, keyPath(key), "", prefer("wait=30")))
	a.awaitWaiters(t, 2)
	require.Equal(t, http.StatusCreated, a.create(t, newKey(), body()).status)
	held.Release()
	for _, done := range []<-chan outcome{first, duplicate} {
		require.Equal(t, http.StatusCreated, (<-done).status)
	}
	require.Equal(t, "finished", (<-status).keyStatus(t).State)
}

// An account that has its share is rejected with 429, and other accounts are served.
func TestOverload_oneAccount(t *testing.T) {
	t.Parallel()
	a := start(t, admit(1, 10))
	order := a.buy(t)
	before := a.rows(t)
	a.occupy(t, uuid.New(), 2) // the permit, and a place in the backlog
	a.occupy(t, a.account, 8)
	for path, content := range map[string]string{"/v1/orders": body(), order + "/refunds": `{"amount":100}`} {
		for _, edits := range [][]edit{nil, {prefer(async)}, {prefer("wait=30")}} {
			got := a.send(t, http.MethodPost, path, content, append(edits, header("Idempotency-Key", newKey()))...)
			requireRejected(t, "rate-limited", got)
		}
	}
	for _, path := range []string{order, "/v1/orders", order + "/refunds", keyPath(newKey())} {
		requireRejected(t, "rate-limited", a.get(t, path))
	}
	require.Equal(t, before, a.rows(t))
	other := a.sendAsync(a.request(t, http.MethodGet, "/v1/orders", "", header("Authorization", "Bearer "+a.otherAccount(t))))
	require.Eventually(t, func() bool { return a.limiter.Stats().Backlog == 10 }, patience, time.Millisecond, "it waits")
	require.Empty(t, other)
}

// A rejected request is neither parsed nor logged as an error (R25).
func TestOverload_rejectionIsCheap(t *testing.T) {
	t.Parallel()
	a := start(t, poolOf(1), admit(1, 1))
	a.occupy(t, uuid.New(), 2)
	conn, err := a.pool.Acquire(t.Context()) // a rejection needs none
	require.NoError(t, err)
	defer conn.Release()
	got := a.create(t, newKey(), "not JSON", header("X-Request-Id", "rejected"))
	requireRejected(t, "rate-limited", got)
	require.Equal(t, "INFO", a.log.await(t, map[string]any{"request_id": "rejected"})["level"])
	require.Equal(t, http.StatusUnauthorized, a.get(t, "/v1/orders", header("Authorization", "Bearer nonsense")).status)
	require.Equal(t, http.StatusOK, a.get(t, "/problems/rate-limited").status)
}

// A webhook that cannot resume its order is delivered again.
func TestOverload_webhook(t *testing.T) {
	t.Parallel()
	a := start(t, admit(1, 10))
	key := newKey()
	a.stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: confirmEndpoint})
	require.Equal(t, http.StatusServiceUnavailable, a.create(t, key, body()).status)
	before := a.keys(t)
	a.occupy(t, uuid.New(), 2)
	a.occupy(t, a.account, 8)
	requireRejected(t, "temporarily-unavailable", a.tell(t, "payment_intent.created"))
	requireRejected(t, "rate-limited", a.create(t, key, body()))
	require.Equal(t, before, a.keys(t), "the key is unchanged")
}

// awaitReadyz sends probes until /readyz has this status. The result of a check
// is used for a second.
func (a *app) awaitReadyz(t *testing.T, status int, edits ...edit) (got answer) {
	t.Helper()
	require.Eventually(t, func() bool {
		got = a.get(t, "/readyz", edits...)
		return got.status == status
	}, patience, 20*time.Millisecond)
	return got
}

// A flood of probes without credentials causes one check, and rejects none.
func TestReadyz_flood(t *testing.T) {
	t.Parallel()
	const probes = 300
	var sent, checks atomic.Int64
	trace := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) { sent.Add(1) },
	})
	release := make(chan struct{})
	a := start(t, func(s *settings) {
		s.ready = func(context.Context) error {
			checks.Add(1)
			<-release
			return nil
		}
	})
	answers := make([]<-chan outcome, probes)
	for i := range answers {
		answers[i] = a.sendAsync(a.request(t, http.MethodGet, "/readyz", "", header("Authorization")).WithContext(trace))
	}
	require.Eventually(t, func() bool { return sent.Load() == probes }, patience, time.Millisecond)
	close(release)
	for _, done := range answers {
		got := <-done
		require.NoError(t, got.err)
		require.Equal(t, http.StatusOK, got.status)
	}
	require.LessOrEqual(t, checks.Load(), int64(2), "the second check belongs to probes that arrived a second later")
}

// Requests that are rejected together are not told to come back together.
func TestOverload_retryAfterHasJitter(t *testing.T) {
	t.Parallel()
	a := start(t, admit(1, 1))
	a.occupy(t, uuid.New(), 2)
	var pending []<-chan outcome
	for range 40 {
		pending = append(pending, a.createAsync(t, newKey(), body()))
	}
	var waits []string
	for _, done := range pending {
		waits = append(waits, (<-done).header.Get("Retry-After"))
	}
	slices.Sort(waits)
	require.Greater(t, len(slices.Compact(waits)), 1) // otherwise a chance of 1 in 3^39
}
