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
	s := openShop(t, terms{conns: 4, crowd: true})
	req := request(t, s.account, s.key, visa)
	s.stripe.Inject(stripetest.Rule{Fault: stripetest.Slow, Endpoint: confirmEndpoint, Delay: 50 * time.Millisecond})

	results := make([]idempotency.Result, clients)
	failures := make([]error, clients)
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() { results[i], failures[i] = s.service.Create(t.Context(), req) })
	}
	group.Wait()

	executed := 0
	for i, result := range results {
		s.note(req, result, failures[i])
		require.Contains(t, []string{"201", "in progress"}, say(result, failures[i]))
		if failures[i] == nil && !result.Replayed {
			executed++
		}
	}
	require.Equal(t, 1, executed)
	require.Equal(t, "create 200, confirm 200", s.wire.said())
	require.Len(t, s.stripe.Charges(), 1)
	s.checkFinal()
}

// Many orders at once on one connection: none of them holds it while the
// provider works (R6).
func TestConcurrent_oneConnection(t *testing.T) {
	t.Parallel()
	const clients = 20
	s := openShop(t, terms{crowd: true})
	held := s.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint, Times: clients})

	var group errgroup.Group
	for i := range clients {
		req := request(t, s.account, idempotency.Key(fmt.Sprintf("one-of-many-clients-%d", i)), visa)
		group.Go(func() error {
			_, err := s.service.Create(t.Context(), req)
			return err
		})
	}
	// All of them are at the provider at the same time, and the pool is idle.
	require.Eventually(t, func() bool { return held.Triggered() == clients }, 30*time.Second, time.Millisecond)
	require.Zero(t, s.pool.Stat().AcquiredConns())
	held.Release()
	require.NoError(t, group.Wait())
	require.Len(t, s.stripe.Charges(), clients)
	checkBooks(t, s)
}
