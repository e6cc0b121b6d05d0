package orders_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"example.com/orders-api/idempotency"
)

// BenchmarkCreate measures whole orders against a provider that answers at once:
// what is left is our own work and the database's.
func BenchmarkCreate(b *testing.B) {
	service, meter, account := openMetered(b, 8)
	b.SetParallelism(8) // orders wait for the database rather than for a processor
	create := func(key string) error {
		_, err := service.Create(b.Context(), request(b, account, idempotency.Key(key), visa))
		return err
	}
	var n atomic.Int64
	meter.Reset()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := create(fmt.Sprintf("one-order-of-the-benchmark-%d", n.Add(1))); err != nil {
				b.Error(err)
				return
			}
		}
	})
	orders := float64(b.N)
	b.ReportMetric(orders/b.Elapsed().Seconds(), "orders/s")
	b.ReportMetric(float64(meter.Commits())/orders, "commits/order")
	b.ReportMetric(float64(meter.RoundTrips())/orders, "roundtrips/order")
}
