package api_test

import (
	"context"
	"net/http"
	"testing"

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
}

func TestAsync_notClaimed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	before := f.rowCounts(t)
	for slug, got := range map[string]response{
		"validation-failed":       f.create(t, newKey(), "{}", prefer(respondAsync)),
		"idempotency-key-missing": f.create(t, newKey(), orderBody(), prefer(respondAsync), header("Idempotency-Key")),
	} {
		require.Equal(t, slug, got.problem(t).slug())
		require.Empty(t, got.header.Get("Preference-Applied"))
	}
	require.Equal(t, before, f.rowCounts(t))

	key := newKey()
	require.Equal(t, http.StatusCreated, f.create(t, key, orderBody()).status)
	idempotencytest.Reap(t, f.Pool)
	require.Equal(t, "idempotency-key-expired", f.create(t, key, orderBody(), prefer(respondAsync)).problem(t).slug())
}

func TestAsync_withWait(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for card, status := range map[string]int{
		"pm_card_visa":                http.StatusCreated,
		"pm_card_visa_chargeDeclined": http.StatusPaymentRequired,
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

func TestAsync_panic(t *testing.T) {
	t.Parallel()
	provider := &panickingTransport{}
	provider.panics.Store(true)
	f := newFixture(t, func(s *options) { s.transport = provider })
	key := newKey()
	requireAccepted(t, f.create(t, key, orderBody(), prefer(respondAsync), header("X-Request-Id", "panicking")), key, respondAsync)
	line := f.log.await(t, map[string]any{"request_id": "panicking", "msg": "background run"})
	require.Equal(t, "ERROR", line["level"])
	require.Equal(t, "panic: the transport panics", line["error"])
	require.Contains(t, line["stack"], "(*panickingTransport).RoundTrip")
	require.EqualValues(t, "order_created", f.getKey(t, key).keyStatus(t).RecoveryPoint)

	got := f.create(t, newKey(), orderBody(), prefer(respondAsync+", wait=30"))
	require.Equal(t, "internal-error", got.problem(t).slug())
	provider.panics.Store(false)
	require.Equal(t, http.StatusCreated, f.create(t, key, orderBody()).status)
	require.Len(t, f.Stripe.Charges(), 1)
}
