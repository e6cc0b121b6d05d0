package api_test

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments/stripetest"
)

// narrow makes the gates of an app so wide.
func narrow(runs, reads int) func(*settings) {
	return func(s *settings) { s.runs, s.reads = runs, reads }
}

// hold takes places for an account.
func hold(t *testing.T, gate *idempotency.Gate, account uuid.UUID, n int) {
	t.Helper()
	for range n {
		_, err := gate.Enter(account)
		require.NoError(t, err)
	}
}

// crowded takes all places, one for each of many accounts.
func crowded(t *testing.T, gate *idempotency.Gate) {
	t.Helper()
	for err := error(nil); err == nil; {
		_, err = gate.Enter(uuid.New())
	}
}

// requireTurnedAway says that nothing was begun, and that the client may come back.
func requireTurnedAway(t *testing.T, slug string, got answer) {
	t.Helper()
	require.Equal(t, slug, got.problem(t).slug(), "%s", got.body)
	wait, err := strconv.Atoi(got.header.Get("Retry-After"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, wait, 1)
	require.LessOrEqual(t, wait, 3)
}

// More orders than the database takes on: here it takes on none for a while. Seven
// of eight places are one account's. Who finds none is told so while the seven
// still wait, leaves no row, and stands in nobody's way.
func TestMoreOrdersThanCanBeMade(t *testing.T) {
	t.Parallel()
	a := start(t, poolOf(4), narrow(8, 100), func(s *settings) {
		s.pool = append(s.pool, func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams["lock_timeout"] = "0" })
	})
	done := newKey()
	made := a.create(t, done, body())
	require.Equal(t, http.StatusCreated, made.status)

	somebody, err := pgx.ConnectConfig(t.Context(), a.pool.Config().ConnConfig)
	require.NoError(t, err)
	defer func() { _ = somebody.Close(context.Background()) }()
	stuck, err := somebody.Begin(t.Context())
	require.NoError(t, err)
	_, err = stuck.Exec(t.Context(), "LOCK TABLE orders IN SHARE MODE") // who only reads may pass
	require.NoError(t, err)
	const places, tries = 7, 20
	keys, finished := make([]string, tries), make(chan answer)
	for i := range keys {
		keys[i] = newKey()
		waiting := a.createAsync(t, keys[i], body())
		go func() { finished <- (<-waiting).answer }()
	}
	for range tries - places {
		requireTurnedAway(t, "temporarily-unavailable", <-finished)
	}
	require.Equal(t, 1, a.rows(t)["orders"])

	replay := a.create(t, done, body())
	require.Equal(t, string(made.body), string(replay.body))
	require.Equal(t, "true", replay.header.Get("Idempotent-Replayed"))
	require.Equal(t, "idempotency-key-reused", a.create(t, done, body(with("currency", "eur"))).problem(t).slug())
	require.Equal(t, http.StatusOK, a.get(t, made.header.Get("Location")).status)
	require.Equal(t, http.StatusOK, a.status(t, done).status)
	require.Equal(t, http.StatusOK, a.get(t, "/healthz").status)
	require.Equal(t, http.StatusOK, a.get(t, "/readyz").status)

	require.NoError(t, stuck.Rollback(t.Context()))
	for range places {
		require.Equal(t, http.StatusCreated, (<-finished).status)
	}
	for _, key := range keys {
		got := a.create(t, key, body())
		require.Equal(t, http.StatusCreated, got.status, "%s", got.body)
	}
	require.Equal(t, 1+tries, a.rows(t)["orders"])
	require.Len(t, a.stripe.Charges(), 1+tries)
	require.Empty(t, a.stripe.OrdersChargedTwice())
}

// Orders that wait for the provider take no place: one is enough for all of them,
// and for others meanwhile.
func TestASlowProviderTakesNoPlaces(t *testing.T) {
	t.Parallel()
	a := start(t, poolOf(1), narrow(1, 100))
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

// An account that has its share is told so, and keeps nobody out.
func TestAnAccountHasAShare(t *testing.T) {
	t.Parallel()
	a := start(t, narrow(10, 10))
	order := a.buy(t)
	refund := a.giveBack(t, order, newKey(), `{"amount":100}`).header.Get("Location")
	key := newKey()
	require.Equal(t, http.StatusCreated, a.create(t, key, body()).status)
	other := header("Authorization", "Bearer "+a.otherAccount(t))
	before := a.rows(t)

	hold(t, a.runs, a.account, 8)
	hold(t, a.runs, uuid.New(), 1)
	for path, content := range map[string]string{"/v1/orders": body(), order + "/refunds": `{"amount":100}`} {
		for _, edits := range [][]edit{nil, {prefer(async)}, {prefer("wait=30")}} {
			got := a.send(t, http.MethodPost, path, content, append(edits, header("Idempotency-Key", newKey()))...)
			requireTurnedAway(t, "rate-limited", got)
		}
	}
	require.Equal(t, before, a.rows(t))
	require.Equal(t, http.StatusCreated, a.create(t, key, body()).status, "a replay")
	require.Equal(t, http.StatusCreated, a.create(t, newKey(), body(), other).status)

	hold(t, a.reads, a.account, 8)
	hold(t, a.reads, uuid.New(), 1)
	for _, path := range []string{order, "/v1/orders", refund, order + "/refunds", keyPath(key)} {
		requireTurnedAway(t, "rate-limited", a.get(t, path))
	}
	require.Equal(t, http.StatusOK, a.get(t, "/v1/orders", other).status)
}

// Too much even to look whose API key it is: whatever needs the database is turned
// away, and what does not is answered.
func TestTooMuchEvenToLook(t *testing.T) {
	t.Parallel()
	a := start(t, narrow(10, 10))
	order := a.buy(t)
	crowded(t, a.reads)
	for _, path := range []string{order, "/v1/orders", order + "/refunds", keyPath(newKey())} {
		requireTurnedAway(t, "temporarily-unavailable", a.get(t, path))
	}
	got := a.create(t, newKey(), body(), header("X-Request-Id", "turned-away"))
	requireTurnedAway(t, "temporarily-unavailable", got)
	require.Equal(t, "WARN", a.log.await(t, map[string]any{"request_id": "turned-away"})["level"])
	require.Equal(t, http.StatusUnauthorized, a.get(t, order, header("Authorization", "Bearer nonsense")).status)
	require.Equal(t, http.StatusOK, a.get(t, "/healthz").status)
	require.Equal(t, http.StatusOK, a.get(t, "/readyz").status)
	require.Equal(t, http.StatusOK, a.get(t, "/problems/rate-limited").status)
}

// A webhook that cannot go on with its order is delivered again.
func TestAWebhookIsTurnedAway(t *testing.T) {
	t.Parallel()
	a := start(t, narrow(10, 10))
	key := newKey()
	a.stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: confirmEndpoint})
	require.Equal(t, http.StatusServiceUnavailable, a.create(t, key, body()).status)
	before := a.keys(t)
	hold(t, a.runs, a.account, 8)
	hold(t, a.runs, uuid.New(), 1)
	requireTurnedAway(t, "temporarily-unavailable", a.tell(t, "payment_intent.created"))
	requireTurnedAway(t, "rate-limited", a.create(t, key, body()))
	require.Equal(t, before, a.keys(t), "the key is as it was")
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

// Those who are turned away together are not told to come back together.
func TestRetryAfterIsScattered(t *testing.T) {
	t.Parallel()
	a := start(t, narrow(1, 10))
	crowded(t, a.runs)
	var waits []string
	for range 40 {
		waits = append(waits, a.create(t, newKey(), body()).header.Get("Retry-After"))
	}
	slices.Sort(waits)
	require.Greater(t, len(slices.Compact(waits)), 1) // else a chance of 1 in 3^39
}
