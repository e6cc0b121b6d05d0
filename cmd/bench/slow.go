package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/orders-api/internal/load"
)

// inFlight is how many orders are under way at once while the provider is slow,
// on a pool of ten connections.
const inFlight = 500

// slowProvider measures how fast orders proceed when most of their time is the
// provider's. Ideally nothing else takes any: then the rate is the orders in
// flight over the time that an order's two calls take. Where the cores cannot do
// that much, what they can do with a provider that answers at once is the bound.
func (b *bench) slowProvider(ctx context.Context) error {
	fmt.Fprintf(b.out, "\na slow provider, %d orders in flight on a pool of 10\n", inFlight)
	most, err := b.inFlight(ctx, 0)
	if err != nil {
		return err
	}
	fmt.Fprintf(b.out, "%10s a call: %5.0f orders/s is what the cores can do\n", "0s", most)
	for _, delay := range []time.Duration{250 * time.Millisecond, 2 * time.Second} {
		rate, err := b.inFlight(ctx, delay)
		if err != nil {
			return err
		}
		ideal := inFlight / (2 * delay).Seconds()
		bound := min(ideal, most)
		fmt.Fprintf(b.out, "%10s a call: %5.0f orders/s, ideal %.0f, %.0f %% of the lower of ideal and what the cores can do\n",
			delay, rate, ideal, 100*rate/bound)
		b.windows = append(b.windows, window{Scenario: "slow-provider " + delay.String(), Clients: inFlight, Orders: rate, Floor: bound})
	}
	return nil
}

// settling is how long it takes until all are under way: when they come at once
// most are told to come back in some seconds.
const settling = 10 * time.Second

// inFlight returns the rate of orders when each of the provider's calls takes
// delay.
func (b *bench) inFlight(ctx context.Context, delay time.Duration) (rate float64, err error) {
	s, err := b.openShop(ctx, delay, 1)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	window := max(b.window, 5*delay)
	report := load.Closed(ctx, inFlight, settling+window, s.insist(s.doors, "slow"))
	if err := allMade(report); err != nil {
		return 0, err
	}
	settled := report.Only(func(r load.Request) bool {
		end := r.At + r.Took
		return end >= settling && end < settling+window
	})
	return float64(len(settled.Requests)) / window.Seconds(), s.audit(ctx)
}
