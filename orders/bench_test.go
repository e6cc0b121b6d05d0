package orders_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments/stripetest"
)

// BenchmarkCreate measures whole orders against a provider that answers at once:
// what is left is our own work and the database's.
func BenchmarkCreate(b *testing.B) {
	m := newCostFixture(b, 8)
	b.SetParallelism(8) // orders wait for the database rather than for a processor
	var n atomic.Int64
	m.meter.Reset()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := m.create(fmt.Sprintf("one-order-of-the-benchmark-%d", n.Add(1))); err != nil {
				b.Error(err)
				return
			}
		}
	})
	orders := float64(b.N)
	b.ReportMetric(orders/b.Elapsed().Seconds(), "orders/s")
	b.ReportMetric(float64(m.meter.Commits())/orders, "commits/order")
	b.ReportMetric(float64(m.meter.RoundTrips())/orders, "roundtrips/order")
}

// BenchmarkComplete measures passes of the completer over a thousand orders that
// were abandoned halfway, each before one of its two calls. A minute is the most
// that such a pass may take.
func BenchmarkComplete(b *testing.B) {
	const keys = 1000
	m := newCostFixture(b, 8)
	completer, err := idempotency.NewCompleter(m.engine, m.service.Operation,
		idempotency.CompleterConfig{Grace: grace, MaxAttempts: 10, Limit: 10_000, Concurrency: 8})
	require.NoError(b, err)
	passes := 0
	b.ResetTimer()
	for b.Loop() {
		b.StopTimer()
		passes++
		m.abandon(keys/2, createEndpoint, fmt.Sprintf("pass-%d-before-create", passes))
		m.abandon(keys/2, confirmEndpoint, fmt.Sprintf("pass-%d-before-confirm", passes))
		b.StartTimer()

		start := time.Now()
		pass, err := completer.RunOnce(b.Context())
		require.NoError(b, err)
		require.Equal(b, idempotency.CompleterResult{Completed: keys}, pass)
		require.Less(b, time.Since(start), time.Minute)
	}
	b.ReportMetric(float64(keys*passes)/b.Elapsed().Seconds(), "keys/s")
	require.Len(b, m.stripe.Charges(), keys*passes)
}

// abandon makes n orders whose requests never reach an endpoint of the provider.
func (m *costFixture) abandon(n int, endpoint, name string) {
	m.tb.Helper()
	away := m.stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: endpoint, Times: stripetest.Always})
	defer away.Release()
	var lanes errgroup.Group
	lanes.SetLimit(8)
	for i := range n {
		lanes.Go(func() error {
			if result, err := m.create(fmt.Sprintf("%s-%d", name, i)); err == nil {
				return fmt.Errorf("answered %d", result.Response.Status)
			}
			return nil
		})
	}
	require.NoError(m.tb, lanes.Wait())
	_, err := m.pool.Exec(m.tb.Context(), "UPDATE idempotency_keys SET last_run_at = last_run_at - $1::interval WHERE finished_at IS NULL AND needs_review_at IS NULL", 2*grace)
	require.NoError(m.tb, err)
}
