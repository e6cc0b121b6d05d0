package api_test

import (
	"context"
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/api"
	"example.com/orders-api/payments/stripetest"
)

const async = "respond-async"

// requireAccepted says that the answer is a whole 202 for the key.
func requireAccepted(t *testing.T, got answer, key, applied string) {
	t.Helper()
	require.Equal(t, http.StatusAccepted, got.status, "%s", got.body)
	require.Equal(t, keyPath(key), got.header.Get("Location"))
	require.Equal(t, "1", got.header.Get("Retry-After"))
	require.Equal(t, applied, got.header.Get("Preference-Applied"))
	require.Equal(t, key, got.header.Get("Idempotency-Key"))
	require.Empty(t, got.header.Get("Idempotent-Replayed"))
	require.Equal(t, key, got.keyStatus(t).Key)
}

func TestAClientThatDoesNotWait(t *testing.T) {
	t.Parallel()
	a := start(t)
	key := newKey()
	held := a.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	got := a.create(t, key, body(), prefer(async), header("X-Request-Id", "not-waiting"))
	requireAccepted(t, got, key, async)
	require.Equal(t, "in_progress", got.keyStatus(t).State)
	line := a.log.await(t, map[string]any{"request_id": "not-waiting"})
	require.Equal(t, "accepted", line["outcome"])
	<-held.Reached()
	require.Equal(t, http.StatusOK, a.get(t, got.keyStatus(t).Order.Href).status, "the order is there")
	requireAccepted(t, a.create(t, key, body(), prefer(async)), key, async) // a duplicate
	require.Equal(t, http.StatusConflict, a.create(t, key, body()).status, "as ever without the preference")
	require.Equal(t, "idempotency-key-reused", a.create(t, key, body(with("currency", "eur")), prefer(async)).problem(t).slug())
	requireAccepted(t, a.create(t, key, body(), prefer(async, "wait=1")), key, "respond-async, wait=1")

	watching := a.sendAsync(a.request(t, http.MethodGet, got.header.Get("Location"), "", prefer("wait=30")))
	a.awaitWaiters(t, 1)
	held.Release()
	require.Equal(t, "finished", (<-watching).keyStatus(t).State)
	line = a.log.await(t, map[string]any{"request_id": "not-waiting", "msg": "background run"})
	require.Equal(t, "created", line["outcome"])
	require.Equal(t, a.account.String(), line["account_id"])
	require.Equal(t, "finished", line["to"])
	require.NotEmpty(t, line["key_id"])

	for _, preference := range []string{"", async} {
		replay := a.create(t, key, body(), prefer(preference))
		require.Equal(t, http.StatusCreated, replay.status)
		require.Equal(t, "true", replay.header.Get("Idempotent-Replayed"))
		require.Empty(t, replay.header.Get("Preference-Applied"))
	}
	a.requireOnePaidOrder(t)
}

// What fails before the claim is told at once, and claims nothing.
func TestNothingIsAcceptedThatIsNotClaimed(t *testing.T) {
	t.Parallel()
	a := start(t)
	before := a.rows(t)
	for slug, got := range map[string]answer{
		"validation-failed":       a.create(t, newKey(), "{}", prefer(async)),
		"malformed-request":       a.create(t, newKey(), "[]", prefer(async)),
		"idempotency-key-invalid": a.create(t, "short", body(), prefer(async)),
		"idempotency-key-missing": a.create(t, newKey(), body(), prefer(async), header("Idempotency-Key")),
		"unauthorized":            a.create(t, newKey(), body(), prefer(async), header("Authorization")),
	} {
		require.Equal(t, slug, got.problem(t).slug())
		require.Empty(t, got.header.Get("Preference-Applied"))
	}
	require.Equal(t, before, a.rows(t))

	key := newKey()
	require.Equal(t, http.StatusCreated, a.create(t, key, body()).status)
	a.exec(t, "DELETE FROM idempotency_keys")
	require.Equal(t, "idempotency-key-expired", a.create(t, key, body(), prefer(async)).problem(t).slug())
}

func TestAClientThatWaitsALittle(t *testing.T) {
	t.Parallel()
	a := start(t)
	for card, status := range map[string]int{
		"pm_card_visa":                http.StatusCreated,
		"pm_card_visa_chargeDeclined": http.StatusPaymentRequired,
		"pm_card_nobody":              http.StatusUnprocessableEntity,
	} {
		got := a.create(t, newKey(), body(with("payment_method", card)), prefer(async+", wait=30"))
		require.Equal(t, status, got.status, "%s", got.body)
		require.Equal(t, "wait=30", got.header.Get("Preference-Applied"))
	}

	key := newKey()
	held := a.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	requireAccepted(t, a.create(t, key, body(), prefer(async+", wait=1")), key, "respond-async, wait=1")
	<-held.Reached()
	duplicate := a.createAsync(t, key, body(), prefer(async+", wait=30"))
	a.awaitWaiters(t, 1)
	held.Release()
	got := <-duplicate
	require.NoError(t, got.err)
	require.Equal(t, http.StatusCreated, got.status)
	require.Equal(t, "wait=30", got.header.Get("Preference-Applied"))

	away := a.stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: createEndpoint})
	failed := newKey()
	require.Equal(t, "temporarily-unavailable", a.create(t, failed, body(), prefer(async+", wait=30")).problem(t).slug(), "it does not go on")
	away.Release()
	requireAccepted(t, a.create(t, failed, body(), prefer(async)), failed, async) // now it does
	require.Equal(t, "finished", a.status(t, failed, prefer("wait=30")).keyStatus(t).State)
	require.Len(t, a.stripe.Charges(), 3)
	require.Empty(t, a.stripe.OrdersChargedTwice())
}

// With too many runs in the background a client is served as if it had no
// preference.
func TestTooManyRunsInTheBackground(t *testing.T) {
	t.Parallel()
	a := start(t, func(s *settings) { s.background = 1 })
	held := a.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	first, second := newKey(), newKey()
	requireAccepted(t, a.create(t, first, body(), prefer(async)), first, async)
	<-held.Reached()
	got := a.create(t, second, body(), prefer(async))
	require.Equal(t, http.StatusCreated, got.status)
	require.Empty(t, got.header.Get("Preference-Applied"))
	require.Equal(t, http.StatusConflict, a.create(t, first, body(), prefer(async)).status, "as without the preference")

	stopped := make(chan error, 1)
	go func() { stopped <- a.background.Wait(t.Context()) }()
	require.Empty(t, stopped)
	held.Release()
	require.NoError(t, <-stopped)
	require.Equal(t, "finished", a.status(t, first).keyStatus(t).State, "a stop waits for it")
	ended, end := context.WithCancel(t.Context())
	end()
	again := a.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	third := newKey()
	requireAccepted(t, a.create(t, third, body(), prefer(async)), third, async)
	<-again.Reached()
	require.ErrorIs(t, a.background.Wait(ended), context.Canceled)
	again.Release()
	require.Equal(t, "finished", a.status(t, third, prefer("wait=30")).keyStatus(t).State)
	require.Len(t, a.stripe.Charges(), 3)
}

func TestBackgroundRunsNeedRoomAndALog(t *testing.T) {
	t.Parallel()
	_, err := api.NewBackground(0, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "must be positive")
	_, err = api.NewBackground(1, nil)
	require.ErrorContains(t, err, "no logger")
}

func TestABackgroundRunPanics(t *testing.T) {
	t.Parallel()
	provider := &trapdoor{}
	provider.open.Store(true)
	a := start(t, func(s *settings) { s.transport = provider })
	key := newKey()
	requireAccepted(t, a.create(t, key, body(), prefer(async), header("X-Request-Id", "panicking")), key, async)
	line := a.log.await(t, map[string]any{"request_id": "panicking", "msg": "background run"})
	require.Equal(t, "ERROR", line["level"])
	require.Equal(t, "panic: the trapdoor is open", line["error"])
	require.Contains(t, line["stack"], "(*trapdoor).RoundTrip")
	require.Equal(t, "order_created", a.status(t, key).keyStatus(t).RecoveryPoint)

	got := a.create(t, newKey(), body(), prefer(async+", wait=30"))
	require.Equal(t, "internal-error", got.problem(t).slug())
	provider.open.Store(false)
	require.Equal(t, http.StatusCreated, a.create(t, key, body()).status)
	require.Len(t, a.stripe.Charges(), 1)
}
