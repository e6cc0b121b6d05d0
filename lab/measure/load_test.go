package measure_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/lab/measure"
)

// server returns a Send that takes latency and serves at most capacity requests at a
// time.
func server(capacity int, latency time.Duration) measure.Send {
	slots := make(chan struct{}, capacity)
	return func(context.Context, int) (int, error) {
		slots <- struct{}{}
		defer func() { <-slots }()
		<-time.After(latency)
		return 201, nil
	}
}

func TestClosed_rate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got := measure.Closed(t.Context(), 4, 10*time.Second, server(2, 100*time.Millisecond))
		require.Equal(t, map[int]int{201: 202}, got.Statuses(), "two at a time, including those in flight at the end")
		require.InDelta(t, 20, got.Rate(), 0.1)
		require.Equal(t, []time.Duration{200 * time.Millisecond}, got.Percentiles(0.5))
	})
}

func TestOpen_rate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got := measure.Open(t.Context(), 30, 10*time.Second, 1000, server(2, 100*time.Millisecond))
		require.Equal(t, map[int]int{201: 300}, got.Statuses())
		require.Equal(t, 15*time.Second, got.Duration.Round(100*time.Millisecond), "the server completes 20 per second")
		require.Equal(t, []time.Duration{100 * time.Millisecond}, got.Percentiles(0))
		require.InDelta(t, 5, got.Percentiles(1)[0].Seconds(), 0.1, "100 requests are ahead of the last one")
	})
}

func TestOpen_latency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got := measure.Open(t.Context(), 10, time.Second, 10, server(1, 200*time.Millisecond))
		require.Equal(t, 10, got.Statuses()[201])
		last := got.Requests[9]
		require.Equal(t, 900*time.Millisecond, last.At)
		require.Equal(t, 1100*time.Millisecond, last.Latency)
	})
}

func TestOpen_maxInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var inFlight, most atomic.Int64
		got := measure.Open(t.Context(), 10, 10*time.Second, 5, func(context.Context, int) (int, error) {
			most.Store(max(most.Load(), inFlight.Add(1)))
			defer inFlight.Add(-1)
			<-time.After(time.Minute)
			return 201, nil
		})
		require.Equal(t, 95, got.Dropped)
		require.EqualValues(t, 5, most.Load())
		require.Len(t, got.Requests, 5)
	})
}

func TestLoad_canceled(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(context.Context, measure.Send) measure.Report{
		"closed": func(ctx context.Context, send measure.Send) measure.Report {
			return measure.Closed(ctx, 2, time.Hour, send)
		},
		"open": func(ctx context.Context, send measure.Send) measure.Report {
			return measure.Open(ctx, 2, time.Hour, 9, send)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				got := run(ctx, server(9, time.Second))
				require.InDelta(t, 60, got.Duration.Seconds(), 2)
			})
		})
	}
}

func TestEndedWithin_slowRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := measure.Closed(t.Context(), 10, 4*time.Second, server(10, time.Second))
		steady := all.EndedWithin(500*time.Millisecond, 3*time.Second)
		require.InDelta(t, 10, steady.Rate(), 0.001)
		require.Len(t, steady.Requests, 30)
	})
}

func TestReport(t *testing.T) {
	t.Parallel()
	report := measure.Report{Duration: 2 * time.Second}
	for i := range 100 {
		report.Requests = append(report.Requests, measure.Request{At: time.Duration(i), Latency: time.Duration(100 - i), Status: 201})
	}
	report.Requests = append(report.Requests,
		measure.Request{Latency: time.Hour, Status: 503},
		measure.Request{Latency: time.Hour, Status: 201, Err: errors.New("truncated body")})
	require.Equal(t, map[int]int{201: 100, 503: 1, 0: 1}, report.Statuses())

	created := report.WithStatus(201)
	require.InDelta(t, 50, created.Rate(), 0.001)
	require.Equal(t, []time.Duration{1, 50, 99, 100}, created.Percentiles(0, 0.5, 0.99, 1))
	late := created.Filter(func(r measure.Request) bool { return r.At >= 90 })
	require.Equal(t, []time.Duration{10}, late.Percentiles(1))
	require.Equal(t, []time.Duration{0}, report.WithStatus(429).Percentiles(0.99), "without requests")
}
