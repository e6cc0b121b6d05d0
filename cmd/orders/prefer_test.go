package main_test

import (
	"context"
	"net/http"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

func (a *api) accepted(idempotencyKey string) {
	a.t.Helper()
	got := a.mustDo(http.MethodPost, "/v1/orders", tea, http.Header{"Idempotency-Key": {idempotencyKey}, "Prefer": {"respond-async"}})
	require.Equal(a.t, http.StatusAccepted, got.status, got.body)
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
