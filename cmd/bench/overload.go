package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/orders-api/client"
	"example.com/orders-api/internal/load"
)

// overload offers orders at a constant rate, whatever the responses are: as many as
// 16 clients get just before, three times as many, and then half as many.
func (b *bench) overload(ctx context.Context) (err error) {
	s, err := b.openShop(ctx, 0, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	load.Closed(ctx, 64, 3*time.Second, s.buy(s.doors, "warm"))

	fmt.Fprintf(b.out, "\noverload: the orders that 16 clients get, then as many as are offered; medians of %d rounds of %s\n", b.rounds, b.window)
	fmt.Fprintf(b.out, "%10s %10s %9s %7s %8s %8s %9s %9s %9s %7s\n",
		"16 clients", "offered/s", "orders/s", "ratio", "p50", "p99", "shed/s", "shed p50", "shed p99", "RSS")
	for _, times := range []float64{1, 3, 0.5} {
		var rounds []offered
		for round := range b.rounds {
			name := fmt.Sprintf("times-%g-%d", times, round)
			closed := load.Closed(ctx, 16, b.window/2, s.buy(s.doors, "capacity-"+name))
			if err := allMade(closed); err != nil {
				return err
			}
			report := load.Open(ctx, times*closed.Rate(), b.window, 20_000, s.buy(s.doors, name))
			result, err := s.offered(closed.Rate(), times, report)
			if err != nil {
				return err
			}
			rounds = append(rounds, result)
		}
		b.printOffered(rounds)
	}
	if err := s.askForUnfinished(ctx); err != nil {
		return err
	}
	return s.audit(ctx)
}

// offered is what became of a load.
type offered struct {
	capacity, rate, made, shed float64 // a second
	took, refused              []time.Duration
	memory                     uint64
	trouble                    time.Duration // see lastTrouble
}

func (s *shop) offered(capacity, times float64, report load.Report) (offered, error) {
	if err := onlyShed(report); err != nil {
		return offered{}, err
	}
	if report.Dropped > 0 {
		return offered{}, fmt.Errorf("%d requests could not be sent", report.Dropped)
	}
	made := report.Answered(http.StatusCreated)
	shed := report.Only(func(r load.Request) bool { return r.Status != http.StatusCreated })
	memory, err := s.peakMemory()
	return offered{
		capacity: capacity, rate: times * capacity, made: made.Rate(), shed: shed.Rate(),
		took: made.Percentiles(0.5, 0.99), refused: shed.Percentiles(0.5, 0.99), memory: memory, trouble: lastTrouble(report),
	}, err
}

// printOffered prints the medians of some rounds.
func (b *bench) printOffered(rounds []offered) {
	rate := func(get func(offered) float64) float64 { return median(rounds, get) }
	latency := func(get func(offered) time.Duration) string {
		return milliseconds(median(rounds, func(o offered) float64 { return float64(get(o)) }))
	}
	fmt.Fprintf(b.out, "%10.0f %10.0f %9.0f %7.2f %8s %8s %9.0f %9s %9s %4.0fMiB\n",
		rate(func(o offered) float64 { return o.capacity }),
		rate(func(o offered) float64 { return o.rate }),
		rate(func(o offered) float64 { return o.made }),
		rate(func(o offered) float64 { return o.made / o.capacity }),
		latency(func(o offered) time.Duration { return o.took[0] }),
		latency(func(o offered) time.Duration { return o.took[1] }),
		rate(func(o offered) float64 { return o.shed }),
		latency(func(o offered) time.Duration { return o.refused[0] }),
		latency(func(o offered) time.Duration { return o.refused[1] }),
		rate(func(o offered) float64 { return float64(o.memory) / (1 << 20) }))
	if rounds[0].rate < rounds[0].capacity {
		fmt.Fprintf(b.out, "the last request that was shed, or took longer than a second, came %s after the overload\n",
			latency(func(o offered) time.Duration { return o.trouble }))
	}
	for _, o := range rounds {
		b.windows = append(b.windows, window{
			Scenario: fmt.Sprintf("offered %.0f/s", o.rate), Orders: o.made, Floor: o.capacity, P50: o.took[0], P99: o.took[1], Memory: o.memory,
		})
	}
}

// lastTrouble is when the last request was due that was not answered as usual.
func lastTrouble(report load.Report) time.Duration {
	var last time.Duration
	for _, r := range report.Requests {
		if r.Status != http.StatusCreated || r.Took > time.Second {
			last = max(last, r.At)
		}
	}
	return last
}

// askForUnfinished sends again what was told to come back after its key was
// claimed. Most of what is shed leaves no key.
func (s *shop) askForUnfinished(ctx context.Context) error {
	rows, err := s.pool.Query(ctx, "SELECT idempotency_key FROM idempotency_keys WHERE finished_at IS NULL")
	if err != nil {
		return err
	}
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, key := range keys {
		answer, err := s.doors[0].Do(ctx, s.order(client.Key(key)))
		if err != nil {
			return err
		}
		if !answer.Replayed() {
			s.sold.Add(1)
		}
	}
	fmt.Fprintf(s.bench.out, "unfinished behind it, and asked for again: %d\n", len(keys))
	return nil
}
