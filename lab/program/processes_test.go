// Package program_test contains what the program's tests leave out: evidence that a shop does
// not need while it changes a command.
package program_test

import (
	"fmt"
	"net/http"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/lab/programtest"
	"example.com/orders-api/payments/stripetest"
)

const confirmEndpoint = "POST /v1/payment_intents/{id}/confirm"

func TestMain(m *testing.M) { os.Exit(programtest.Main{M: m}.Run()) }

// Two processes on one database act as one API. Concurrent requests to both charge an
// order once and get one response. If one process dies, the other takes its keys over.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	f := programtest.NewFixture(t)
	env := f.With("STRIPE_TIMEOUT=1s", "LOCK_TIMEOUT=2s")
	a, b := f.Serve(env, "--shutdown-delay", "0"), f.Serve(env, "--shutdown-delay", "0")
	const orders = 4
	var responses [orders][4]programtest.Response
	var clients errgroup.Group
	for n := range orders {
		for i, process := range []*programtest.API{a, b, b, a} {
			clients.Go(func() (err error) {
				responses[n][i], err = process.UntilPaid(t.Context(), fmt.Sprintf("shared-order-key-%d", n))
				return err
			})
		}
	}
	require.NoError(t, clients.Wait(), "every response is 201 or retryable")
	for _, ofOrder := range responses {
		replays := 0
		for _, got := range ofOrder {
			require.Equal(t, ofOrder[0].Body, got.Body)
			if got.Header.Get("Idempotent-Replayed") == "true" {
				replays++
			}
		}
		require.Equal(t, len(ofOrder)-1, replays)
	}
	require.Len(t, f.Stripe.Charges(), orders)

	held := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldResponse, Endpoint: confirmEndpoint, Times: stripetest.Always})
	lost := make(chan error, 1)
	go func() {
		_, err := a.Order(t.Context(), "orphan-order-key-1")
		lost <- err
	}()
	<-held.Reached()
	early, err := b.Order(t.Context(), "orphan-order-key-1")
	require.NoError(t, err)
	require.Equal(t, http.StatusConflict, early.Status, "in progress in the other process")
	a.Signal(syscall.SIGKILL)
	require.Error(t, <-lost)
	held.Release()
	_, err = b.UntilPaid(t.Context(), "orphan-order-key-1")
	require.NoError(t, err)
	require.Len(t, f.Stripe.Charges(), orders+1)
	require.Empty(t, f.Stripe.OrdersChargedTwice())
	require.Equal(t, orders+1, f.Count("SELECT count(*) FROM staged_jobs"))
	b.Stop()
}
