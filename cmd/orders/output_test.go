package main_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/payments/stripetest"
)

// The reader of the log dies during an order. The order and the process go on.
func TestServe_logReaderGone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.serve(f.environ, "--shutdown-delay", "0")
	held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	order := a.OrderAsync("log-reader-gone-1")
	<-held.Reached()
	a.Stderr.Close()
	a.Stdout.Close()
	for range 20 { // the first log line closes the pipe, and the others find it closed
		require.Equal(t, http.StatusNotFound, a.MustDo(http.MethodGet, "/v1/orders/unknown", "", nil).Status)
	}
	held.Release()
	done := <-order
	require.NoError(t, done.Err)
	require.Equal(t, http.StatusCreated, done.Status)
	programtest.RequirePaid(t, a.MustOrder("log-reader-gone-2", programtest.Tea))
	a.Stop()
}
