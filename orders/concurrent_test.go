package orders_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments/stripetest"
)

func TestConcurrent_oneKey(t *testing.T) {
	t.Parallel()
	const clients = 50
	f := newFixture(t, options{connections: 4, concurrent: true})
	req := request(t, f.account, f.key, visa)
	f.stripe.Inject(stripetest.Rule{Fault: stripetest.Slow, Endpoint: confirm, Delay: 50 * time.Millisecond})

	results := make([]idempotency.Result, clients)
	failures := make([]error, clients)
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() { results[i], failures[i] = f.service.Create(t.Context(), req) })
	}
	group.Wait()

	executed := 0
	for i, result := range results {
		f.recordResponse(req, result, failures[i])
		require.Contains(t, []string{"201", "409 in progress"}, outcomeOf(result, failures[i]))
		if failures[i] == nil && !result.Replayed {
			executed++
		}
	}
	require.Equal(t, 1, executed)
	require.Equal(t, "create 200, confirm 200", f.transport.calls())
	require.Len(t, f.stripe.Charges(), 1)
	f.checkFinal()
}

// One connection is enough for many concurrent orders: none holds it during a call (R6).
func TestConcurrent_oneConnection(t *testing.T) {
	t.Parallel()
	const clients = 20
	f := newFixture(t, options{concurrent: true})
	held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirm, Times: clients})

	var group errgroup.Group
	for i := range clients {
		req := request(t, f.account, idempotency.Key(fmt.Sprintf("one-of-many-clients-%d", i)), visa)
		group.Go(func() error {
			_, err := f.service.Create(t.Context(), req)
			return err
		})
	}
	require.Eventually(t, func() bool { return held.Triggered() == clients }, 30*time.Second, time.Millisecond)
	require.Zero(t, f.pool.Stat().AcquiredConns())
	held.Release()
	require.NoError(t, group.Wait())
	require.Len(t, f.stripe.Charges(), clients)
	checkInvariants(t, f)
}
