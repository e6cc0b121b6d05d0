package orders_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
)

// BenchmarkCreate measures orders without HTTP and without a provider delay.
func BenchmarkCreate(b *testing.B) {
	f := newFixture(b, 8)
	b.SetParallelism(8) // orders wait for the database, not for a processor
	var n atomic.Int64
	f.wire.Reset()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := f.create(fmt.Sprintf("an-order-of-the-benchmark-%d", n.Add(1))); err != nil {
				b.Error(err)
				return
			}
		}
	})
	orders := float64(b.N)
	b.ReportMetric(orders/b.Elapsed().Seconds(), "orders/s")
	b.ReportMetric(float64(f.wire.Commits())/orders, "commits/order")
	b.ReportMetric(float64(f.wire.RoundTrips())/orders, "roundtrips/order")
}

// BenchmarkComplete measures the completer with a thousand abandoned orders, half of them
// before each provider call.
func BenchmarkComplete(b *testing.B) {
	const keys = 1000
	f := newFixture(b, 8)
	completer := idempotency.NewCompleter(f.Engine, f.Operations.Operations(),
		idempotency.CompleterConfig{Grace: grace, MaxAttempts: 10, ActionTimeout: 24 * time.Hour, Limit: 10_000, Concurrency: 8})
	runs := 0
	b.ResetTimer()
	for b.Loop() {
		b.StopTimer()
		runs++
		f.abandon(keys/2, createEndpoint, fmt.Sprintf("run-%d-before-create", runs))
		f.abandon(keys/2, confirmEndpoint, fmt.Sprintf("run-%d-before-confirm", runs))
		b.StartTimer()

		start := time.Now()
		result, err := completer.RunOnce(b.Context())
		require.NoError(b, err)
		require.Equal(b, idempotency.CompleterResult{Completed: keys}, result)
		require.Less(b, time.Since(start), time.Minute)
	}
	b.ReportMetric(float64(keys*runs)/b.Elapsed().Seconds(), "keys/s")
	require.Len(b, f.Stripe.Charges(), keys*runs)
}
