package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/orders-api/lab/load"
	"example.com/orders-api/lab/measure"
)

// overload offers orders at a constant rate, independent of the responses. The rates are
// that of 16 clients, measured just before, then three times and half that rate.
func (b *bench) overload(ctx context.Context) (err error) {
	s, err := b.startSystem(ctx, 0, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	load.Closed(ctx, 64, 3*time.Second, s.createOrders(s.clients, "warm"))

	fmt.Fprintf(b.out, "\noverload: the rate of 16 clients, then a constant offered rate; medians of %d rounds of %s\n", b.rounds, b.window)
	fmt.Fprintf(b.out, "%10s %10s %9s %7s %8s %8s %9s %9s %9s %7s\n",
		"16 clients", "offered/s", "orders/s", "ratio", "p50", "p99", "shed/s", "shed p50", "shed p99", "RSS")
	for _, times := range []float64{1, 3, 0.5} {
		var rounds []overloadRound
		for round := range b.rounds {
			name := fmt.Sprintf("times-%g-%d", times, round)
			closed := load.Closed(ctx, 16, b.window/2, s.createOrders(s.clients, "capacity-"+name))
			if err := allCreated(closed); err != nil {
				return err
			}
			report := load.Open(ctx, times*closed.Rate(), b.window, 20_000, s.createOrders(s.clients, name))
			result, err := s.overloadRound(closed.Rate(), times, report)
			if err != nil {
				return err
			}
			rounds = append(rounds, result)
		}
		b.printOverload(rounds)
	}
	if err := s.retryUnfinished(ctx); err != nil {
		return err
	}
	return s.audit(ctx)
}

type overloadRound struct {
	capacity, rate, created, shed float64         // per second; rate is the offered one
	createdLatency, shedLatency   []time.Duration // 50th and 99th percentile
	memory                        uint64
	recovery                      time.Duration // see recoveryTime
}

// overloadRound summarises a report. A response other than created or shed is an error.
func (s *system) overloadRound(capacity, times float64, report load.Report) (overloadRound, error) {
	if err := allCreatedOrShed(report); err != nil {
		return overloadRound{}, err
	}
	if report.Dropped > 0 {
		return overloadRound{}, fmt.Errorf("%d requests could not be sent", report.Dropped)
	}
	created := report.WithStatus(http.StatusCreated)
	shed := report.Filter(func(r load.Request) bool { return r.Status != http.StatusCreated })
	memory, err := s.peakMemory()
	return overloadRound{
		capacity: capacity, rate: times * capacity, created: created.Rate(), shed: shed.Rate(),
		createdLatency: created.Percentiles(0.5, 0.99), shedLatency: shed.Percentiles(0.5, 0.99), memory: memory, recovery: recoveryTime(report),
	}, err
}

func (b *bench) printOverload(rounds []overloadRound) {
	rate := func(get func(overloadRound) float64) float64 { return measure.Median(rounds, get) }
	latency := func(get func(overloadRound) time.Duration) string {
		return milliseconds(measure.Median(rounds, func(o overloadRound) float64 { return float64(get(o)) }))
	}
	fmt.Fprintf(b.out, "%10.0f %10.0f %9.0f %7.2f %8s %8s %9.0f %9s %9s %4.0fMiB\n",
		rate(func(o overloadRound) float64 { return o.capacity }),
		rate(func(o overloadRound) float64 { return o.rate }),
		rate(func(o overloadRound) float64 { return o.created }),
		rate(func(o overloadRound) float64 { return o.created / o.capacity }),
		latency(func(o overloadRound) time.Duration { return o.createdLatency[0] }),
		latency(func(o overloadRound) time.Duration { return o.createdLatency[1] }),
		rate(func(o overloadRound) float64 { return o.shed }),
		latency(func(o overloadRound) time.Duration { return o.shedLatency[0] }),
		latency(func(o overloadRound) time.Duration { return o.shedLatency[1] }),
		rate(func(o overloadRound) float64 { return float64(o.memory) / (1 << 20) }))
	if rounds[0].rate < rounds[0].capacity {
		fmt.Fprintf(b.out, "the last request that was shed, or took longer than a second, was due %s after the overload\n",
			latency(func(o overloadRound) time.Duration { return o.recovery }))
	}
	for _, o := range rounds {
		b.windows = append(b.windows, window{
			Scenario: fmt.Sprintf("offered %.0f/s", o.rate), Orders: o.created, Floor: o.capacity, P50: o.createdLatency[0], P99: o.createdLatency[1], Memory: o.memory,
		})
	}
}

// recoveryTime returns the due time of the last request that was shed or took longer than
// a second, since the start.
func recoveryTime(report load.Report) time.Duration {
	var last time.Duration
	for _, r := range report.Requests {
		if r.Status != http.StatusCreated || r.Latency > time.Second {
			last = max(last, r.At)
		}
	}
	return last
}

// retryUnfinished retries each request whose key is claimed but not finished. Most
// rejected requests have claimed no key.
func (s *system) retryUnfinished(ctx context.Context) error {
	rows, err := s.pool.Query(ctx, "SELECT idempotency_key FROM idempotency_keys WHERE finished_at IS NULL")
	if err != nil {
		return err
	}
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, key := range keys {
		response, err := s.retrying.Do(ctx, s.order(key))
		if err != nil {
			return err
		}
		if !response.Replayed() {
			s.created.Add(1)
		}
	}
	fmt.Fprintf(s.bench.out, "unfinished afterwards, and retried: %d\n", len(keys))
	return nil
}
