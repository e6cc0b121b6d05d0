package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"example.com/orders-api/lab/load"
	"example.com/orders-api/lab/measure"
)

// firstOrders is the warm-up time. It is longer than an order takes with the slow
// provider, so that the rate is stable.
const firstOrders = time.Second

// insistent measures clients that ignore Retry-After. The ratio compares their rate with
// that of 16 clients in the same round. With a slow provider the ideal rate is the bound,
// if it is lower.
func (b *bench) insistent(ctx context.Context) (err error) {
	fast, err := b.startSystem(ctx, 0, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fast.stop()) }()
	const delay = 250 * time.Millisecond
	slow, err := b.startSystem(ctx, delay, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, slow.stop()) }()
	load.Closed(ctx, 64, 3*time.Second, fast.createOrders(fast.clients, "warm"))

	fmt.Fprintf(b.out, "\nclients that ignore Retry-After: medians of %d rounds of %s\n", b.rounds, b.window)
	fmt.Fprintf(b.out, "%-28s %9s %9s %7s %9s %9s %9s %7s\n", "", "orders/s", "bound/s", "ratio", "shed/s", "p99", "shed p99", "RSS")
	for _, v := range []struct {
		system  *system
		clients int
		ideal   float64 // per second
	}{
		{fast, 200, 0},
		{fast, 400, 0},
		{fast, 600, 0},
		{slow, 100, 100 / (2 * delay).Seconds()},
		{slow, 256, 256 / (2 * delay).Seconds()},
		{slow, 500, 500 / (2 * delay).Seconds()},
	} {
		name := fmt.Sprintf("%d clients", v.clients)
		if v.ideal > 0 {
			name += fmt.Sprintf(", provider 2 x %s", delay)
		}
		var rounds []window
		var shed, p99, shedP99 []window
		for round := range b.rounds {
			capacity := load.Closed(ctx, 16, b.window/2, fast.createOrders(fast.clients, fmt.Sprintf("capacity-%s-%d", name[:3], round+10*v.clients)))
			bound := capacity.WithStatus(http.StatusCreated).Rate()
			if v.ideal > 0 {
				bound = min(bound, v.ideal)
			}
			report := load.Closed(ctx, v.clients, firstOrders+b.window, v.system.createOrders(v.system.clients, fmt.Sprintf("insist-%d-%d", v.clients, round)))
			if err := allCreatedOrShed(report); err != nil {
				return err
			}
			report = report.EndedWithin(firstOrders, b.window)
			created := report.WithStatus(http.StatusCreated)
			rejected := report.Filter(func(r load.Request) bool { return r.Status != http.StatusCreated })
			memory, err := v.system.peakMemory()
			if err != nil {
				return err
			}
			rounds = append(rounds, window{Scenario: name, Clients: v.clients, Round: round + 1, Orders: created.Rate(), Floor: bound, Memory: memory})
			shed = append(shed, window{Orders: rejected.Rate()})
			p99 = append(p99, window{P99: created.Percentiles(0.99)[0]})
			shedP99 = append(shedP99, window{P99: rejected.Percentiles(0.99)[0]})
		}
		b.windows = append(b.windows, rounds...)
		latency := func(list []window) string {
			return milliseconds(measure.Median(list, func(w window) float64 { return float64(w.P99) }))
		}
		fmt.Fprintf(b.out, "%-28s %9.0f %9.0f %7.2f %9.0f %9s %9s %4.0fMiB\n", name,
			measure.Median(rounds, func(w window) float64 { return w.Orders }),
			measure.Median(rounds, func(w window) float64 { return w.Floor }),
			measure.Median(rounds, func(w window) float64 { return w.Orders / w.Floor }),
			measure.Median(shed, func(w window) float64 { return w.Orders }), latency(p99), latency(shedP99),
			measure.Median(rounds, func(w window) float64 { return float64(w.Memory) / (1 << 20) }))
	}
	if err := fast.noisyNeighbour(ctx); err != nil {
		return err
	}
	return errors.Join(fast.retryUnfinished(ctx), slow.retryUnfinished(ctx), fast.audit(ctx), slow.audit(ctx))
}

// noisyNeighbour measures one client while 200 clients of another account ignore
// Retry-After.
func (s *system) noisyNeighbour(ctx context.Context) error {
	apiKey, err := s.createAccount(ctx, "single")
	if err != nil {
		return err
	}
	single := load.NewClient(s.addresses[0], apiKey)
	defer single.Close()
	done := make(chan load.Report, 1)
	go func() { done <- load.Closed(ctx, 200, s.bench.window, s.createOrders(s.clients, "noisy")) }()
	report := load.Closed(ctx, 1, s.bench.window-time.Second, s.createOrders([]*load.Client{single}, "single"))
	noisy := <-done
	created := report.WithStatus(http.StatusCreated)
	latency := created.Percentiles(0.5, 0.99)
	fmt.Fprintf(s.bench.out, "one client next to 200 of another account (%.0f orders/s): %d orders, p50 %s, p99 %s, %d rejected\n",
		noisy.WithStatus(http.StatusCreated).Rate(), len(created.Requests), milliseconds(float64(latency[0])), milliseconds(float64(latency[1])),
		len(report.Requests)-len(created.Requests))
	return nil
}

func allCreatedOrShed(report load.Report) error {
	for status := range report.Statuses() {
		switch status {
		case http.StatusCreated, http.StatusServiceUnavailable, http.StatusTooManyRequests:
		default:
			return fmt.Errorf("statuses other than created and rejected: %v", report.Statuses())
		}
	}
	return nil
}
