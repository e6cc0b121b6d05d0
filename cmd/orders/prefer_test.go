package main_test

import (
	"context"
	"net/http"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

// accepted sends an order with respond-async.
func (a *api) accepted(idempotencyKey string) {
	a.t.Helper()
	got := a.mustDo(http.MethodPost, "/v1/orders", tea, http.Header{"Idempotency-Key": {idempotencyKey}, "Prefer": {"respond-async"}})
	require.Equal(a.t, http.StatusAccepted, got.status, got.body)
}

// The client got a 202, the card was charged, and then the process was killed.
func TestServe_killedAfterA202(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.serve(f.environ)
	held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldResponse, Endpoint: confirmEndpoint, Times: stripetest.Always})
	a.accepted("accepted-order-key")
	<-held.Reached()
	a.signal(syscall.SIGKILL)
	a.wait()
	held.Release()

	f.exec("UPDATE idempotency_keys SET locked_at = locked_at - interval '1 hour', last_run_at = last_run_at - interval '1 hour'")
	succeed(t, f.environ, "completer")
	b := f.serve(f.environ, "--shutdown-delay", "0")
	got := b.mustOrder("accepted-order-key", tea)
	requirePaid(t, got)
	require.Equal(t, "true", got.header.Get("Idempotent-Replayed"))
	require.Len(t, f.stripe.Charges(), 1)
	require.Equal(t, 1, f.staged())
	b.stop()
}

// A stop waits for a run that has no client any more (R10).
func TestServe_stopWaitsForARunWithoutClient(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]func(a *api, reached <-chan struct{}){
		"202": func(a *api, _ <-chan struct{}) { a.accepted("a-run-without-client") },
		"disconnected": func(a *api, reached <-chan struct{}) {
			ctx, disconnect := context.WithCancel(context.Background())
			go func() {
				<-reached
				disconnect()
			}()
			_, err := a.do(ctx, http.MethodPost, "/v1/orders", tea, http.Header{"Idempotency-Key": {"a-run-without-client"}})
			require.ErrorIs(a.t, err, context.Canceled)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			a := f.serve(f.environ, "--shutdown-delay", "0")
			held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
			send(a, held.Reached())
			<-held.Reached()
			a.signal(syscall.SIGTERM)
			eventually(t, func() bool { return a.ready() == 0 })
			require.False(t, a.hasExited())
			held.Release()
			require.Zero(t, a.wait())
			require.Equal(t, 1, f.count("SELECT count(*) FROM orders WHERE status = 'paid'"))
			require.Equal(t, 1, f.staged())
			require.Len(t, f.stripe.Charges(), 1)
		})
	}
}
