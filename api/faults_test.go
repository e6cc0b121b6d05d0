package api_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

const (
	createEndpoint  = "POST /v1/payment_intents"
	readEndpoint    = "GET /v1/payment_intents/{id}"
	confirmEndpoint = "POST /v1/payment_intents/{id}/confirm"
)

type panickingTransport struct {
	http.Transport
	panics atomic.Bool
}

func (p *panickingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if p.panics.Load() {
		panic("the transport panics")
	}
	return p.Transport.RoundTrip(req)
}

func TestPanic_keyIsResumable(t *testing.T) {
	t.Parallel()
	provider := &panickingTransport{}
	provider.panics.Store(true)
	f := newFixture(t, func(s *options) { s.transport = provider })
	key, asyncKey := newKey(), newKey()

	got := f.create(t, key, orderBody(), header("X-Request-Id", "panicking"))
	require.Equal(t, http.StatusInternalServerError, got.status)
	require.Equal(t, key, got.header.Get("Idempotency-Key"))
	require.JSONEq(t, `{"type":"/problems/internal-error","title":"Internal error","status":500,
		"detail":"Send the same request again.","retry":"same-key","outcome":"unknown","request_id":"panicking"}`, string(got.body))
	requireAccepted(t, f.create(t, asyncKey, orderBody(), prefer(respondAsync), header("X-Request-Id", "panicking-later")), asyncKey, respondAsync)
	for _, want := range []map[string]any{
		{"request_id": "panicking", "msg": "request"},
		{"request_id": "panicking-later", "msg": "background run"},
	} {
		line := f.log.await(t, want)
		require.Equal(t, []any{"ERROR", "panic: the transport panics"}, []any{line["level"], line["error"]})
		require.Contains(t, line["stack"], "(*panickingTransport).RoundTrip")
	}
	require.EqualValues(t, "order_created", f.getKey(t, asyncKey).keyStatus(t).RecoveryPoint)
	require.Equal(t, "internal-error", f.create(t, newKey(), orderBody(), prefer(respondAsync+", wait=30")).problem(t).slug())

	provider.panics.Store(false)
	for _, resumed := range []string{key, asyncKey} {
		require.Equal(t, http.StatusCreated, f.create(t, resumed, orderBody()).status)
	}
	require.Len(t, f.Stripe.Charges(), 2)
	require.Empty(t, f.Stripe.OrdersChargedTwice())
}

// A client that disconnects does not cancel the charge (R10).
func TestCreateOrder_clientDisconnects(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := newKey()
	held := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	first := f.createAsync(t, key, orderBody(), header("X-Request-Id", "hanging-up"), func(r *http.Request) { *r = *r.WithContext(ctx) })
	<-held.Reached()
	hangUp()
	require.ErrorIs(t, (<-first).err, context.Canceled)
	require.Equal(t, http.StatusConflict, f.create(t, key, orderBody()).status, "the run continues")

	held.Release()
	line := f.log.await(t, map[string]any{"request_id": "hanging-up"})
	require.Equal(t, []any{"INFO", "created"}, []any{line["level"], line["outcome"]})
	got := f.create(t, key, orderBody())
	require.Equal(t, http.StatusCreated, got.status)
	require.Equal(t, "true", got.header.Get("Idempotent-Replayed"))
	f.requireOnePaidOrder(t)
}

// A client that disconnects while its request waits is no error of the server.
func TestGetOrder_clientDisconnects(t *testing.T) {
	t.Parallel()
	f := newFixture(t, limiterBounds(1, 10))
	f.fillLimiter(t, 1)
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	waiting := f.sendAsync(f.request(t, http.MethodGet, "/v1/orders", "", header("X-Request-Id", "hanging-up")).WithContext(ctx))
	require.Eventually(t, func() bool { return f.limiter.Stats().Backlog == 1 }, stepTimeout, time.Millisecond)
	hangUp()
	require.ErrorIs(t, (<-waiting).err, context.Canceled)
	line := f.log.await(t, map[string]any{"request_id": "hanging-up"})
	require.Equal(t, []any{"INFO", 499.0, nil}, []any{line["level"], line["status"], line["problem"]})
}
