package api_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/payments/stripetest"
)

const respondAsync = "respond-async"

func requireAccepted(t *testing.T, got response, key, applied string) {
	t.Helper()
	require.Equal(t, http.StatusAccepted, got.status, "%s", got.body)
	require.Equal(t, keyPath(key), got.header.Get("Location"))
	require.Equal(t, "1", got.header.Get("Retry-After"))
	require.Equal(t, applied, got.header.Get("Preference-Applied"))
	require.Equal(t, key, got.header.Get("Idempotency-Key"))
	require.EqualValues(t, key, got.keyStatus(t).Key)
}

func TestAsync_accepted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := newKey()
	held := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	got := f.create(t, key, orderBody(), prefer(respondAsync), header("X-Request-Id", "not-waiting"))
	requireAccepted(t, got, key, respondAsync)
	require.Equal(t, "in_progress", got.keyStatus(t).State)
	line := f.log.await(t, map[string]any{"request_id": "not-waiting"})
	require.Equal(t, "accepted", line["outcome"])
	<-held.Reached()
	require.Equal(t, http.StatusOK, f.get(t, got.keyStatus(t).Order.Href).status, "the order exists")
	requireAccepted(t, f.create(t, key, orderBody(), prefer(respondAsync)), key, respondAsync) // a duplicate
	require.Equal(t, http.StatusConflict, f.create(t, key, orderBody()).status, "without the preference")
	require.Equal(t, "idempotency-key-reused", f.create(t, key, orderBody(withMember("currency", "eur")), prefer(respondAsync)).problem(t).slug())
	requireAccepted(t, f.create(t, key, orderBody(), prefer(respondAsync, "wait=1")), key, "respond-async, wait=1")

	watching := f.sendAsync(f.request(t, http.MethodGet, got.header.Get("Location"), "", prefer("wait=30")))
	f.awaitWaiters(t, 1)
	held.Release()
	require.Equal(t, "finished", (<-watching).keyStatus(t).State)
	line = f.log.await(t, map[string]any{"request_id": "not-waiting", "msg": "background run"})
	require.Equal(t, []any{"created", f.Account.String(), "finished"}, []any{line["outcome"], line["account_id"], line["to"]})
	replay := f.create(t, key, orderBody(), prefer(respondAsync))
	require.Equal(t, http.StatusCreated, replay.status)
	require.Equal(t, "true", replay.header.Get("Idempotent-Replayed"))
	require.Empty(t, replay.header.Get("Preference-Applied"))
	f.requireOnePaidOrder(t)

	idempotencytest.Reap(t, f.Pool)
	for slug, unused := range map[string]response{
		"validation-failed":       f.create(t, newKey(), "{}", prefer(respondAsync)),
		"idempotency-key-expired": f.create(t, key, orderBody(), prefer(respondAsync)),
	} {
		require.Equal(t, slug, unused.problem(t).slug())
		require.Empty(t, unused.header.Get("Preference-Applied"))
	}
}

func TestAsync_withWait(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for card, status := range map[string]int{
		"pm_card_visa":                http.StatusCreated,
		"pm_card_visa_chargeDeclined": http.StatusPaymentRequired,
		authenticatedCard:             http.StatusAccepted,
	} {
		got := f.create(t, newKey(), orderBody(withMember("payment_method", card)), prefer(respondAsync+", wait=30"))
		require.Equal(t, status, got.status, "%s", got.body)
		require.Equal(t, "wait=30", got.header.Get("Preference-Applied"))
	}

	key := newKey()
	held := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	requireAccepted(t, f.create(t, key, orderBody(), prefer(respondAsync+", wait=1")), key, "respond-async, wait=1")
	<-held.Reached()
	duplicate := f.createAsync(t, key, orderBody(), prefer(respondAsync+", wait=30"))
	f.awaitWaiters(t, 1)
	held.Release()
	got := receive(t, duplicate)
	require.Equal(t, http.StatusCreated, got.status)
	require.Equal(t, "wait=30", got.header.Get("Preference-Applied"))

	f.Stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: createEndpoint})
	require.Equal(t, "temporarily-unavailable", f.create(t, newKey(), orderBody(), prefer(respondAsync+", wait=30")).problem(t).slug(), "the run has ended")
	require.Len(t, f.Stripe.Charges(), 2)
}

func TestAsync_tooManyRuns(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(s *options) { s.background = 1 })
	held := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	first, second := newKey(), newKey()
	requireAccepted(t, f.create(t, first, orderBody(), prefer(respondAsync)), first, respondAsync)
	<-held.Reached()
	got := f.create(t, second, orderBody(), prefer(respondAsync))
	require.Equal(t, http.StatusCreated, got.status)
	require.Empty(t, got.header.Get("Preference-Applied"))
	require.Equal(t, http.StatusConflict, f.create(t, first, orderBody(), prefer(respondAsync)).status, "the preference is ignored")

	ended, end := context.WithCancel(t.Context())
	end()
	require.ErrorIs(t, f.background.Wait(ended), context.Canceled)
	stopped := make(chan error, 1)
	go func() { stopped <- f.background.Wait(t.Context()) }()
	require.Empty(t, stopped)
	held.Release()
	require.NoError(t, <-stopped)
	require.Equal(t, "finished", f.getKey(t, first).keyStatus(t).State, "Wait waits for it")
	require.Len(t, f.Stripe.Charges(), 2)
}

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
	f.Engine.DrainWaiters()
	require.Equal(t, "idempotency-key-in-progress", receive(t, waiting[0]).problem(t).slug(), "the process stops")
	requireInProgress("wait=30", "")
	held.Release()
	require.Equal(t, http.StatusCreated, (<-first).status)
	f.requireOnePaidOrder(t)
}
