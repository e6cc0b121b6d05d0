package orders_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/payments/stripetest"
)

const waiters = 500

// BenchmarkWaiters compares the time of an order with and without many requests that wait
// for one key of another account. The two cases alternate, so that other load affects
// both.
func BenchmarkWaiters(b *testing.B) {
	const rounds = 50
	for b.Loop() {
		f := newFixture(b, 8)
		clients := newWaitingClients(f)
		f.measure("warm") // prepares the statements
		var with, without []float64
		for round := range rounds {
			idle := func() { without = append(without, f.measure(fmt.Sprintf("without-%d", round))) }
			waiting := func() {
				finish := clients.start(fmt.Sprintf("a-key-with-many-waiters-%d", round))
				with = append(with, f.measure(fmt.Sprintf("with-%d", round)))
				finish()
			}
			phases := []func(){idle, waiting}
			if round%2 == 1 {
				slices.Reverse(phases)
			}
			for _, phase := range phases {
				phase()
			}
		}
		ratios := make([]float64, rounds)
		for i := range ratios {
			ratios[i] = with[i] / without[i]
		}
		b.ReportMetric(median(without), "ms/order-without")
		b.ReportMetric(median(with), "ms/order-with")
		b.ReportMetric(median(ratios), "ratio")
		b.Logf("ratios of %d rounds, sorted: %.3f", rounds, ratios) // median has sorted them
		require.LessOrEqual(b, median(ratios), 1.1)
	}
}

// measure creates 200 orders, four at a time, and returns the milliseconds per order.
func (f *fixture) measure(name string) float64 {
	f.tb.Helper()
	const orders, clients = 200, 4
	var group errgroup.Group
	runtime.GC() // excludes the garbage of the start
	start := time.Now()
	for c := range clients {
		group.Go(func() error {
			for i := range orders / clients {
				if _, err := f.create(fmt.Sprintf("a-measured-order-%s-%d-%d", name, c, i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(f.tb, group.Wait())
	return float64(time.Since(start)) / float64(time.Millisecond) * clients / orders
}

type waitingClients struct{ fixture }

func newWaitingClients(f *fixture) *waitingClients {
	c := &waitingClients{*f}
	c.Account = idempotencytest.Account(f.tb, f.Pool)
	return c
}

// start makes the clients wait for an order whose provider call is held. finish releases
// the call and checks that all clients get the same response.
func (c *waitingClients) start(key string) (finish func()) {
	c.tb.Helper()
	req := c.request(key)
	held := c.Stripe.Inject(stripetest.Rule{
		Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint, OrderID: idempotency.DeriveID("order", c.Account, req.Key).String(),
	})
	bodies := make([]string, waiters+1)
	var group errgroup.Group
	var waiting sync.WaitGroup
	send := func(i int, wait func()) {
		group.Go(func() error {
			for {
				result, err := c.Create(context.WithoutCancel(c.tb.Context()), req)
				wait()
				if !errors.Is(err, idempotency.ErrInProgress) {
					bodies[i] = string(result.Response.Body)
					return err
				}
				c.Engine.AwaitTurn(c.tb.Context(), c.Account, result.KeyID)
			}
		})
	}
	send(waiters, func() {})
	<-held.Reached()
	waiting.Add(waiters)
	for i := range waiters {
		send(i, sync.OnceFunc(waiting.Done))
	}
	waiting.Wait()
	return func() {
		held.Release()
		require.NoError(c.tb, group.Wait())
		require.Len(c.tb, slices.Compact(bodies), 1)
	}
}

func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
