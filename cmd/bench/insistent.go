package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"example.com/orders-api/client"
	"example.com/orders-api/internal/load"
)

// insistent offers orders by clients that ignore Retry-After: what is rejected is
// followed by the next request at once. Each figure is a ratio to what 16 clients
// got in the same round, or to what so many clients can get of a slow provider.
func (b *bench) insistent(ctx context.Context) (err error) {
	prompt, err := b.openShop(ctx, 0, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, prompt.close()) }()
	const delay = 250 * time.Millisecond
	slow, err := b.openShop(ctx, delay, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, slow.close()) }()
	load.Closed(ctx, 64, 3*time.Second, prompt.buy(prompt.doors, "warm"))

	fmt.Fprintf(b.out, "\nclients that ignore Retry-After: medians of %d rounds of %s\n", b.rounds, b.window)
	fmt.Fprintf(b.out, "%-28s %9s %9s %7s %9s %9s %9s %7s\n", "", "orders/s", "bound/s", "ratio", "shed/s", "p99", "shed p99", "RSS")
	for _, scene := range []struct {
		shop    *shop
		clients int
		ideal   float64 // a second
	}{
		{prompt, 200, 0},
		{prompt, 600, 0},
		{slow, 100, 100 / (2 * delay).Seconds()},
		{slow, 256, 256 / (2 * delay).Seconds()},
		{slow, 500, 500 / (2 * delay).Seconds()},
	} {
		name := fmt.Sprintf("%d clients", scene.clients)
		if scene.ideal > 0 {
			name += fmt.Sprintf(", provider 2 x %s", delay)
		}
		var rounds []window
		var shed, p99, shedP99 []window
		for round := range b.rounds {
			capacity := load.Closed(ctx, 16, b.window/2, prompt.buy(prompt.doors, fmt.Sprintf("capacity-%s-%d", name[:3], round+10*scene.clients)))
			bound := capacity.Answered(http.StatusCreated).Rate()
			if scene.ideal > 0 {
				bound = min(bound, scene.ideal)
			}
			report := load.Closed(ctx, scene.clients, b.window, scene.shop.buy(scene.shop.doors, fmt.Sprintf("insist-%d-%d", scene.clients, round)))
			if err := onlyShed(report); err != nil {
				return err
			}
			made := report.Answered(http.StatusCreated)
			rejected := report.Only(func(r load.Request) bool { return r.Status != http.StatusCreated })
			memory, err := scene.shop.peakMemory()
			if err != nil {
				return err
			}
			rounds = append(rounds, window{Scenario: name, Clients: scene.clients, Round: round + 1, Orders: made.Rate(), Floor: bound, Memory: memory})
			shed = append(shed, window{Orders: rejected.Rate()})
			p99 = append(p99, window{P99: made.Percentiles(0.99)[0]})
			shedP99 = append(shedP99, window{P99: rejected.Percentiles(0.99)[0]})
		}
		b.windows = append(b.windows, rounds...)
		latency := func(list []window) string {
			return milliseconds(median(list, func(w window) float64 { return float64(w.P99) }))
		}
		fmt.Fprintf(b.out, "%-28s %9.0f %9.0f %7.2f %9.0f %9s %9s %4.0fMiB\n", name,
			median(rounds, func(w window) float64 { return w.Orders }),
			median(rounds, func(w window) float64 { return w.Floor }),
			median(rounds, func(w window) float64 { return w.Orders / w.Floor }),
			median(shed, func(w window) float64 { return w.Orders }), latency(p99), latency(shedP99),
			median(rounds, func(w window) float64 { return float64(w.Memory) / (1 << 20) }))
	}
	if err := prompt.besideOthers(ctx); err != nil {
		return err
	}
	return errors.Join(prompt.askForUnfinished(ctx), slow.askForUnfinished(ctx), prompt.audit(ctx), slow.audit(ctx))
}

// besideOthers measures one client of an account while 200 of another account
// ignore Retry-After.
func (s *shop) besideOthers(ctx context.Context) error {
	apiKey, err := s.createAccount(ctx, "beside")
	if err != nil {
		return err
	}
	door, err := client.New(client.Config{BaseURL: "http://" + s.addresses[0], APIKey: apiKey})
	if err != nil {
		return err
	}
	defer door.Close()
	done := make(chan load.Report, 1)
	go func() { done <- load.Closed(ctx, 200, s.bench.window, s.buy(s.doors, "crowd")) }()
	beside := load.Closed(ctx, 1, s.bench.window-time.Second, s.buy([]*client.Client{door}, "beside"))
	crowd := <-done
	made := beside.Answered(http.StatusCreated)
	latency := made.Percentiles(0.5, 0.99)
	fmt.Fprintf(s.bench.out, "beside 200 clients of another account (%.0f orders/s): one client, %d orders, p50 %s, p99 %s, %d rejected\n",
		crowd.Answered(http.StatusCreated).Rate(), len(made.Requests), milliseconds(float64(latency[0])), milliseconds(float64(latency[1])),
		len(beside.Requests)-len(made.Requests))
	return nil
}

// onlyShed returns an error unless every request was answered 201, 429 or 503.
func onlyShed(report load.Report) error {
	for status := range report.Statuses() {
		switch status {
		case http.StatusCreated, http.StatusServiceUnavailable, http.StatusTooManyRequests:
		default:
			return fmt.Errorf("neither created nor rejected: %v", report.Statuses())
		}
	}
	return nil
}
