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

// awaitWaiters returns when so many requests wait. Those of a crowd do for thirty
// seconds; a busy machine may need a good part of them to get so many there.
func (a *app) awaitWaiters(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return a.engine.Waiters() == n }, 25*time.Second, time.Millisecond)
}

// crowd sends the same order n times, each ready to wait, and returns when all do.
func (a *app) crowd(t *testing.T, n int, key, body string, edits ...edit) []<-chan outcome {
	t.Helper()
	waiting := make([]<-chan outcome, n)
	for i := range waiting {
		waiting[i] = a.createAsync(t, key, body, append([]edit{prefer("wait=30")}, edits...)...)
	}
	a.awaitWaiters(t, n)
	return waiting
}

// barrier is a transport to the provider that stops the first request to an
// endpoint on its way.
type barrier struct {
	http.Transport
	path            string // the end of it
	reached, opened chan struct{}
	once            sync.Once
}

func newBarrier(path string) *barrier {
	return &barrier{path: path, reached: make(chan struct{}), opened: make(chan struct{})}
}

func (b *barrier) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, b.path) {
		b.once.Do(func() {
			close(b.reached)
			<-b.opened
		})
	}
	return b.Transport.RoundTrip(req)
}

func TestDuplicatesWaitForTheAnswer(t *testing.T) {
	t.Parallel()
	for card, status := range map[string]int{
		"pm_card_visa":                http.StatusCreated,
		"pm_card_visa_chargeDeclined": http.StatusPaymentRequired,
	} {
		t.Run(card, func(t *testing.T) {
			t.Parallel()
			a := start(t, poolOf(1))
			key, order := newKey(), body(with("payment_method", card))
			held := a.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
			first := a.createAsync(t, key, order)
			<-held.Reached()
			waiting := a.crowd(t, 50, key, order)
			require.Equal(t, http.StatusOK, a.get(t, "/v1/orders").status, "the only connection is free (R6)")
			held.Release()
			made := <-first
			require.NoError(t, made.err)
			require.Equal(t, status, made.status)
			for _, done := range waiting {
				got := <-done
				require.NoError(t, got.err)
				require.Equal(t, status, got.status)
				require.Equal(t, string(made.body), string(got.body))
				require.Equal(t, made.header.Get("Location"), got.header.Get("Location"))
				require.Equal(t, "true", got.header.Get("Idempotent-Replayed"))
				require.Equal(t, "wait=30", got.header.Get("Preference-Applied"))
			}
			replay := a.create(t, key, order, prefer("wait=30"))
			require.Equal(t, string(made.body), string(replay.body))
			require.Empty(t, replay.header.Get("Preference-Applied"), "there was nothing to wait for")
			require.Len(t, a.stripe.Requests(), 2, "one create, one confirm")
			if status == http.StatusCreated {
				a.requireOnePaidOrder(t)
			}
		})
	}
}

// Waiters that come at any moment of a short run, also as it ends.
func TestWaitersArriveAsTheRunFinishes(t *testing.T) {
	t.Parallel()
	a := start(t)
	for range 5 {
		key := newKey()
		running := make([]<-chan outcome, 20)
		for i := range running {
			running[i] = a.createAsync(t, key, body(), prefer("wait=30"))
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
	require.Len(t, a.stripe.Charges(), 5)
	require.Empty(t, a.stripe.OrdersChargedTwice())
}

func TestAWaitThatIsTooShort(t *testing.T) {
	t.Parallel()
	a := start(t)
	key := newKey()
	held := a.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	first := a.createAsync(t, key, body())
	<-held.Reached()
	got := a.create(t, key, body(), prefer("wait=1"))
	require.Equal(t, "idempotency-key-in-progress", got.problem(t).slug())
	require.Equal(t, "wait=1", got.header.Get("Preference-Applied"))
	require.Equal(t, "1", got.header.Get("Retry-After"))
	for _, none := range []string{"wait=0", "wait=soon", "return=minimal"} {
		got = a.create(t, key, body(), prefer(none))
		require.Equal(t, http.StatusConflict, got.status)
		require.Empty(t, got.header.Get("Preference-Applied"))
	}
	require.Equal(t, "idempotency-key-reused", a.create(t, key, body(with("currency", "eur")), prefer("wait=30")).problem(t).slug(), "at once")
	held.Release()
	require.Equal(t, http.StatusCreated, (<-first).status)
	a.requireOnePaidOrder(t)
}

// The run that fifty wait for gives the key back. One of them takes over, and is
// the only one that was not answered with a replay.
func TestOneOfThoseWhoWaitTakesOver(t *testing.T) {
	t.Parallel()
	barrier := newBarrier("/v1/payment_intents")
	a := start(t, func(s *settings) { s.transport = barrier })
	a.stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: createEndpoint})
	key := newKey()
	first := a.createAsync(t, key, body())
	<-barrier.reached
	waiting := a.crowd(t, 50, key, body())
	close(barrier.opened)
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
	require.Equal(t, 2, a.status(t, key).keyStatus(t).Attempt)
	a.requireOnePaidOrder(t)
}

func TestTheWaitingRoomIsFull(t *testing.T) {
	t.Parallel()
	a := start(t, func(s *settings) { s.waiters = 1 })
	key := newKey()
	held := a.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	first := a.createAsync(t, key, body())
	<-held.Reached()
	waiting := a.crowd(t, 1, key, body())
	got := a.create(t, key, body(), prefer("wait=30"))
	require.Equal(t, "idempotency-key-in-progress", got.problem(t).slug())
	require.Empty(t, got.header.Get("Preference-Applied"))
	status := a.status(t, key, prefer("wait=30"))
	require.Equal(t, "in_progress", status.keyStatus(t).State)
	require.Empty(t, status.header.Get("Preference-Applied"))
	held.Release()
	require.Equal(t, http.StatusCreated, (<-first).status)
	require.Equal(t, http.StatusCreated, (<-waiting[0]).status)
	a.requireOnePaidOrder(t)
}

// Who hangs up leaves a seat, and nothing else.
func TestAWaiterHangsUp(t *testing.T) {
	t.Parallel()
	a := start(t)
	key := newKey()
	held := a.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	first := a.createAsync(t, key, body())
	<-held.Reached()
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	gone := a.crowd(t, 5, key, body(), func(r *http.Request) { *r = *r.WithContext(ctx) })
	hangUp()
	for _, done := range gone {
		require.ErrorIs(t, (<-done).err, context.Canceled)
	}
	a.awaitWaiters(t, 0)
	held.Release()
	require.Equal(t, http.StatusCreated, (<-first).status)
	a.requireOnePaidOrder(t)
}

func TestAStopSendsThoseAwayWhoWait(t *testing.T) {
	t.Parallel()
	a := start(t)
	key := newKey()
	held := a.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	first := a.createAsync(t, key, body())
	<-held.Reached()
	waiting := a.crowd(t, 5, key, body())
	watching := a.sendAsync(a.request(t, http.MethodGet, keyPath(key), "", prefer("wait=30")))
	a.awaitWaiters(t, 6)
	a.engine.DrainWaiters()
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
	require.Equal(t, http.StatusConflict, a.create(t, key, body(), prefer("wait=30")).status, "nobody waits any more")
	held.Release()
	require.Equal(t, http.StatusCreated, (<-first).status)
	a.requireOnePaidOrder(t)
}

// The database goes and comes back while they wait. Nobody is stranded.
func TestTheDatabaseIsAwayWhileTheyWait(t *testing.T) {
	t.Parallel()
	database := &outage{}
	a := start(t, func(s *settings) { s.pool = append(s.pool, database.configure) })
	key := newKey()
	held := a.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	first := a.createAsync(t, key, body())
	<-held.Reached()
	waiting := a.crowd(t, 5, key, body())
	impatient := a.createAsync(t, key, body(), prefer("wait=2"))
	a.awaitWaiters(t, 6)
	database.set(true)
	line := a.log.await(t, map[string]any{"msg": "idempotency: poll of awaited keys failed, retrying"})
	require.Equal(t, "WARN", line["level"])
	got := <-impatient
	require.NoError(t, got.err)
	require.Equal(t, http.StatusConflict, got.status)
	database.set(false)
	held.Release()
	require.Equal(t, http.StatusCreated, (<-first).status)
	for _, done := range waiting {
		got := <-done
		require.NoError(t, got.err)
		require.Equal(t, http.StatusCreated, got.status, "%s", got.body)
	}
	a.requireOnePaidOrder(t)
}
