package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// awaitWaiters allows nearly the thirty seconds of a wait, for a busy machine.
func (f *fixture) awaitWaiters(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return f.Engine.Waiters() == n }, 25*time.Second, time.Millisecond)
}

func (f *fixture) startWaiters(t *testing.T, n int, key, body string) []<-chan asyncResponse {
	t.Helper()
	waiting := make([]<-chan asyncResponse, n)
	for i := range waiting {
		waiting[i] = f.createAsync(t, key, body, prefer("wait=30"))
	}
	f.awaitWaiters(t, n)
	return waiting
}

// Requests that wait for another run hold neither a permit nor a connection (R6).
func TestWait_duplicates(t *testing.T) {
	t.Parallel()
	f := newFixture(t, poolSize(1), limiterBounds(1, 100))
	key, order := newKey(), orderBody()
	held, first := f.createHeld(t, key, order)
	waiting := f.startWaiters(t, 20, key, order)
	watching := make([]<-chan asyncResponse, 20)
	for i := range watching {
		watching[i] = f.sendAsync(f.request(t, http.MethodGet, keyPath(key), "", prefer("wait=600")))
	}
	f.awaitWaiters(t, len(waiting)+len(watching))
	other := f.create(t, newKey(), order)
	require.Equal(t, http.StatusCreated, other.status)
	held.Release()
	created := receive(t, first)
	require.Equal(t, http.StatusCreated, created.status)
	for _, done := range waiting {
		got := receive(t, done)
		require.Equal(t, http.StatusCreated, got.status)
		require.Equal(t, string(created.body), string(got.body))
		require.Equal(t, "true", got.header.Get("Idempotent-Replayed"))
		require.Equal(t, "wait=30", got.header.Get("Preference-Applied"))
	}
	for _, done := range watching {
		got := receive(t, done)
		require.Equal(t, "wait=30", got.header.Get("Preference-Applied"))
		require.Equal(t, "finished", got.keyStatus(t).State)
		require.Equal(t, string(f.getKey(t, key).body), string(got.body))
	}
	for _, got := range []response{f.create(t, key, order, prefer("wait=30")), f.getKey(t, key, prefer("wait=30"))} {
		require.Empty(t, got.header.Get("Preference-Applied"), "there was nothing to wait for")
	}
	require.Len(t, f.Stripe.Requests(), 4, "a create and a confirm of each order")
}

func TestWait_inProgress(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(s *options) { s.waiters = 1 })
	key := newKey()
	held, first := f.createHeld(t, key, orderBody())
	requireInProgress := func(preference, applied string) {
		got := f.create(t, key, orderBody(), prefer(preference))
		require.Equal(t, "idempotency-key-in-progress", got.problem(t).slug())
		require.Equal(t, applied, got.header.Get("Preference-Applied"))
		require.Equal(t, "1", got.header.Get("Retry-After"))
	}
	requireInProgress("wait=1", "wait=1")
	short := f.getKey(t, key, prefer("wait=1"))
	require.Equal(t, []string{"in_progress", "wait=1"}, []string{short.keyStatus(t).State, short.header.Get("Preference-Applied")})
	require.Equal(t, "idempotency-key-reused", f.create(t, key, orderBody(withMember("currency", "eur")), prefer("wait=30")).problem(t).slug(), "at once")
	waiting := f.startWaiters(t, 1, key, orderBody())
	requireInProgress("wait=30", "")
	require.Empty(t, f.getKey(t, key, prefer("wait=30")).header.Get("Preference-Applied"))
	held.Release()
	require.Equal(t, http.StatusCreated, (<-first).status)
	require.Equal(t, http.StatusCreated, (<-waiting[0]).status)
	f.requireOnePaidOrder(t)
}

func TestWait_shutdown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := newKey()
	held, first := f.createHeld(t, key, orderBody())
	waiting := f.startWaiters(t, 5, key, orderBody())
	watching := f.sendAsync(f.request(t, http.MethodGet, keyPath(key), "", prefer("wait=30")))
	f.awaitWaiters(t, 6)
	f.Engine.DrainWaiters()
	for _, done := range waiting {
		got := receive(t, done)
		require.Equal(t, "idempotency-key-in-progress", got.problem(t).slug())
		require.Empty(t, got.header.Get("Preference-Applied"))
	}
	require.Equal(t, "in_progress", receive(t, watching).keyStatus(t).State)
	require.Equal(t, http.StatusConflict, f.create(t, key, orderBody(), prefer("wait=30")).status, "no request waits any more")
	held.Release()
	require.Equal(t, http.StatusCreated, (<-first).status)
	f.requireOnePaidOrder(t)
}
