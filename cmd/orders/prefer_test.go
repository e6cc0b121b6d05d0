package main_test

import (
	"context"
	"net/http"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/payments/stripetest"
)

// A stop waits for a run that has no client any more (R10, detached work).
func TestServe_stopWaitsForARunWithoutClient(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]func(a *programtest.API, reached <-chan struct{}){
		"202": func(a *programtest.API, _ <-chan struct{}) { a.Accepted("a-run-without-client") },
		"disconnected": func(a *programtest.API, reached <-chan struct{}) {
			ctx, disconnect := context.WithCancel(context.Background())
			go func() {
				<-reached
				disconnect()
			}()
			_, err := a.Do(ctx, http.MethodPost, "/v1/orders", programtest.Tea, http.Header{"Idempotency-Key": {"a-run-without-client"}})
			require.ErrorIs(a.T, err, context.Canceled)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			a := f.serve(f.environ, "--shutdown-delay", "0")
			held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
			send(a, held.Reached())
			<-held.Reached()
			a.Signal(syscall.SIGTERM)
			programtest.Eventually(t, func() bool { return a.Ready() == 0 })
			require.False(t, a.HasExited())
			held.Release()
			require.Zero(t, a.Wait())
			require.Equal(t, 1, f.count("SELECT count(*) FROM orders WHERE status = 'paid'"))
			require.Equal(t, 1, f.staged())
			require.Len(t, f.stripe.Charges(), 1)
		})
	}
}
