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

// overload offers orders at a constant rate, whatever becomes of them: as many as
// the server can do, three times as many, and then half as many.
func (b *bench) overload(ctx context.Context) (err error) {
	s, err := b.openShop(ctx, 0, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	load.Closed(ctx, 16, b.window/2, s.buy(s.doors, "warm"))
	closed := load.Closed(ctx, 16, b.window, s.buy(s.doors, "capacity"))
	if err := allMade(closed); err != nil {
		return err
	}
	capacity := closed.Rate()

	fmt.Fprintf(b.out, "\noverload: %.0f orders/s are what 16 clients get; then as many as are offered\n", capacity)
	fmt.Fprintf(b.out, "%10s %9s %9s %8s %8s %9s %9s %7s\n", "offered/s", "orders/s", "shed/s", "p50", "p99", "shed p50", "shed p99", "RSS")
	for _, times := range []float64{1, 3, 0.5} {
		name := fmt.Sprintf("times-%g", times)
		report := load.Open(ctx, times*capacity, b.window, 20_000, s.buy(s.doors, name))
		if err := b.offered(s, times*capacity, report); err != nil {
			return err
		}
		if times < 1 {
			fmt.Fprintf(b.out, "back to normal: the last request that was shed, or took longer than a second, came %s after the overload\n",
				lastTrouble(report).Round(100*time.Millisecond))
		}
	}
	if err := s.askForUnfinished(ctx); err != nil {
		return err
	}
	return s.audit(ctx)
}

// offered prints what became of a load.
func (b *bench) offered(s *shop, rate float64, report load.Report) error {
	if err := onlyShed(report); err != nil {
		return err
	}
	if report.Dropped > 0 {
		return fmt.Errorf("%d requests could not be sent", report.Dropped)
	}
	made := report.Answered(http.StatusCreated)
	shed := report.Only(func(r load.Request) bool { return r.Status != http.StatusCreated })
	took, refused := made.Percentiles(0.5, 0.99), shed.Percentiles(0.5, 0.99)
	memory, err := s.peakMemory()
	if err != nil {
		return err
	}
	fmt.Fprintf(b.out, "%10.0f %9.0f %9.0f %8s %8s %9s %9s %4.0fMiB\n", rate, made.Rate(), shed.Rate(),
		milliseconds(float64(took[0])), milliseconds(float64(took[1])),
		milliseconds(float64(refused[0])), milliseconds(float64(refused[1])), float64(memory)/(1<<20))
	b.windows = append(b.windows, window{
		Scenario: fmt.Sprintf("offered %.0f/s", rate), Orders: made.Rate(), P50: took[0], P99: took[1], Memory: memory,
	})
	return nil
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
