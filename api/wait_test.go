package api_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

// awaitWaiters returns when so many requests wait. They wait for thirty seconds, and a
// busy machine may need many of these to start them all.
func (f *fixture) awaitWaiters(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return f.engine.Waiters() == n }, 25*time.Second, time.Millisecond)
}

// startWaiters sends the same order n times with wait=30, and returns when all wait.
func (f *fixture) startWaiters(t *testing.T, n int, key, body string, edits ...requestEdit) []<-chan asyncResponse {
	t.Helper()
	waiting := make([]<-chan asyncResponse, n)
	for i := range waiting {
		waiting[i] = f.createAsync(t, key, body, append([]requestEdit{prefer("wait=30")}, edits...)...)
	}
	f.awaitWaiters(t, n)
	return waiting
}

// blockingTransport is a transport to the provider that holds the first request to an
// endpoint.
type blockingTransport struct {
	http.Transport
	path              string // the suffix
	reached, released chan struct{}
	once              sync.Once
}

func newBlockingTransport(path string) *blockingTransport {
	return &blockingTransport{path: path, reached: make(chan struct{}), released: make(chan struct{})}
}

func (b *blockingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, b.path) {
		b.once.Do(func() {
			close(b.reached)
			<-b.released
		})
	}
	return b.Transport.RoundTrip(req)
}

func TestWait_duplicates(t *testing.T) {
	t.Parallel()
	f := newFixture(t, poolSize(1))
	key, order := newKey(), orderBody()
	held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	first := f.createAsync(t, key, order)
	<-held.Reached()
	waiting := f.startWaiters(t, 20, key, order)
	require.Equal(t, http.StatusOK, f.get(t, "/v1/orders").status, "the only connection is free (R6)")
	held.Release()
	created := <-first
	require.NoError(t, created.err)
	require.Equal(t, http.StatusCreated, created.status)
	for _, done := range waiting {
		got := <-done
		require.NoError(t, got.err)
		require.Equal(t, http.StatusCreated, got.status)
		require.Equal(t, string(created.body), string(got.body))
		require.Equal(t, created.header.Get("Location"), got.header.Get("Location"))
		require.Equal(t, "true", got.header.Get("Idempotent-Replayed"))
		require.Equal(t, "wait=30", got.header.Get("Preference-Applied"))
	}
	replay := f.create(t, key, order, prefer("wait=30"))
	require.Equal(t, string(created.body), string(replay.body))
	require.Empty(t, replay.header.Get("Preference-Applied"), "there was nothing to wait for")
	require.Len(t, f.stripe.Requests(), 2, "one create, one confirm")
	f.requireOnePaidOrder(t)
}

// Waiters arrive at any time of a short run, also as it ends.
func TestWait_shortRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for range 5 {
		key := newKey()
		running := make([]<-chan asyncResponse, 20)
		for i := range running {
			running[i] = f.createAsync(t, key, orderBody(), prefer("wait=30"))
		}
		made, bodies := 0, map[string]bool{}
		for _, done := range running {
			got := <-done
			require.NoError(t, got.err)
			require.Equal(t, http.StatusCreated, got.status, "%s", got.body)
			bodies[string(got.body)] = true
			if got.header.Get("Idempotent-Replayed") == "" {
				made++
			}
		}
		require.Equal(t, 1, made)
		require.Len(t, bodies, 1)
	}
	require.Len(t, f.stripe.Charges(), 5)
	require.Empty(t, f.stripe.OrdersChargedTwice())
}

func TestWait_tooShort(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := newKey()
	held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	first := f.createAsync(t, key, orderBody())
	<-held.Reached()
	got := f.create(t, key, orderBody(), prefer("wait=1"))
	require.Equal(t, "idempotency-key-in-progress", got.problem(t).slug())
	require.Equal(t, "wait=1", got.header.Get("Preference-Applied"))
	require.Equal(t, "1", got.header.Get("Retry-After"))
	for _, none := range []string{"wait=0", "wait=soon", "return=minimal"} {
		got = f.create(t, key, orderBody(), prefer(none))
		require.Equal(t, http.StatusConflict, got.status)
		require.Empty(t, got.header.Get("Preference-Applied"))
	}
	require.Equal(t, "idempotency-key-reused", f.create(t, key, orderBody(withMember("currency", "eur")), prefer("wait=30")).problem(t).slug(), "at once")
	held.Release()
	require.Equal(t, http.StatusCreated, (<-first).status)
	f.requireOnePaidOrder(t)
}

// The run releases the key without a response. One of the waiters takes over, and is
// the only one whose response is not a replay.
func TestWait_takeover(t *testing.T) {
	t.Parallel()
	barrier := newBlockingTransport("/v1/payment_intents")
	f := newFixture(t, func(s *options) { s.transport = barrier })
	f.stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: createEndpoint})
	key := newKey()
	first := f.createAsync(t, key, orderBody())
	<-barrier.reached
	waiting := f.startWaiters(t, 20, key, orderBody())
	close(barrier.released)
	require.Equal(t, http.StatusServiceUnavailable, (<-first).status)
	made := 0
	bodies := map[string]bool{}
	for _, done := range waiting {
		got := <-done
		require.NoError(t, got.err)
		require.Equal(t, http.StatusCreated, got.status, "%s", got.body)
		require.Equal(t, "wait=30", got.header.Get("Preference-Applied"))
		bodies[string(got.body)] = true
		if got.header.Get("Idempotent-Replayed") == "" {
			made++
		}
	}
	require.Equal(t, 1, made)
	require.Len(t, bodies, 1)
	require.Equal(t, 2, f.getKey(t, key).keyStatus(t).Attempt)
	f.requireOnePaidOrder(t)
}

func TestWait_tooManyWaiters(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(s *options) { s.waiters = 1 })
	key := newKey()
	held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	first := f.createAsync(t, key, orderBody())
	<-held.Reached()
	waiting := f.startWaiters(t, 1, key, orderBody())
	got := f.create(t, key, orderBody(), prefer("wait=30"))
	require.Equal(t, "idempotency-key-in-progress", got.problem(t).slug())
	require.Empty(t, got.header.Get("Preference-Applied"))
	status := f.getKey(t, key, prefer("wait=30"))
	require.Equal(t, "in_progress", status.keyStatus(t).State)
	require.Empty(t, status.header.Get("Preference-Applied"))
	held.Release()
	require.Equal(t, http.StatusCreated, (<-first).status)
	require.Equal(t, http.StatusCreated, (<-waiting[0]).status)
	f.requireOnePaidOrder(t)
}

// A waiter that disconnects makes room for another one.
func TestWait_clientDisconnects(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := newKey()
	held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	first := f.createAsync(t, key, orderBody())
	<-held.Reached()
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	gone := f.startWaiters(t, 5, key, orderBody(), func(r *http.Request) { *r = *r.WithContext(ctx) })
	hangUp()
	for _, done := range gone {
		require.ErrorIs(t, (<-done).err, context.Canceled)
	}
	f.awaitWaiters(t, 0)
	held.Release()
	require.Equal(t, http.StatusCreated, (<-first).status)
	f.requireOnePaidOrder(t)
}

func TestWait_shutdown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := newKey()
	held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	first := f.createAsync(t, key, orderBody())
	<-held.Reached()
	waiting := f.startWaiters(t, 5, key, orderBody())
	watching := f.sendAsync(f.request(t, http.MethodGet, keyPath(key), "", prefer("wait=30")))
	f.awaitWaiters(t, 6)
	f.engine.DrainWaiters()
	for _, done := range waiting {
		got := <-done
		require.NoError(t, got.err)
		require.Equal(t, "idempotency-key-in-progress", got.problem(t).slug())
		require.Equal(t, "1", got.header.Get("Retry-After"))
		require.Empty(t, got.header.Get("Preference-Applied"))
	}
	got := <-watching
	require.NoError(t, got.err)
	require.Equal(t, "in_progress", got.keyStatus(t).State)
	require.Empty(t, got.header.Get("Preference-Applied"))
	require.Equal(t, http.StatusConflict, f.create(t, key, orderBody(), prefer("wait=30")).status, "no request waits any more")
	held.Release()
	require.Equal(t, http.StatusCreated, (<-first).status)
	f.requireOnePaidOrder(t)
}

// The waiters survive an outage of the database.
func TestWait_databaseOutage(t *testing.T) {
	t.Parallel()
	database := &databaseOutage{}
	f := newFixture(t, func(s *options) { s.pool = append(s.pool, database.configure) })
	key := newKey()
	held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	first := f.createAsync(t, key, orderBody())
	<-held.Reached()
	waiting := f.startWaiters(t, 5, key, orderBody())
	impatient := f.createAsync(t, key, orderBody(), prefer("wait=2"))
	f.awaitWaiters(t, 6)
	database.setDown(true)
	line := f.log.await(t, map[string]any{"msg": "idempotency: poll of awaited keys failed, retrying"})
	require.Equal(t, "WARN", line["level"])
	got := <-impatient
	require.NoError(t, got.err)
	require.Equal(t, http.StatusConflict, got.status)
	database.setDown(false)
	held.Release()
	require.Equal(t, http.StatusCreated, (<-first).status)
	for _, done := range waiting {
		got := <-done
		require.NoError(t, got.err)
		require.Equal(t, http.StatusCreated, got.status, "%s", got.body)
	}
	f.requireOnePaidOrder(t)
}
