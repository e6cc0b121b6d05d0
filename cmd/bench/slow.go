package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/orders-api/internal/load"
)

// settling is how long it takes until all are under way: when they come at once
// most are told to come back in some seconds.
const settling = 6 * time.Second

// slowProvider measures how fast orders proceed when most of their time is the
// provider's. Ideally nothing else takes any: then the rate is the orders in
// flight over the time that an order's two calls take. Where the cores cannot do
// that much, the bound is what they do, in turns with that, for as many clients
// of a provider that answers at once.
func (b *bench) slowProvider(ctx context.Context) error {
	fmt.Fprintf(b.out, "\na slow provider, on a pool of 10 connections\n")
	return errors.Join(
		b.slow(ctx, 200, 250*time.Millisecond),
		b.slow(ctx, 500, 2*time.Second),
		b.slow(ctx, 500, 250*time.Millisecond), // two cores are not enough for that
	)
}

func (b *bench) slow(ctx context.Context, inFlight int, delay time.Duration) (err error) {
	prompt, err := b.openShop(ctx, 0, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, prompt.close()) }()
	late, err := b.openShop(ctx, delay, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, late.close()) }()

	ideal := float64(inFlight) / (2 * delay).Seconds()
	var rounds []window
	for round := range b.rounds {
		cores, err := prompt.inFlight(ctx, inFlight, round, b.window)
		if err != nil {
			return err
		}
		rate, err := late.inFlight(ctx, inFlight, round, max(b.window, 5*delay))
		if err != nil {
			return err
		}
		rounds = append(rounds, window{
			Scenario: "slow-provider-" + delay.String(), Clients: inFlight, Round: round + 1,
			Orders: rate, Floor: min(ideal, cores),
		})
	}
	b.windows = append(b.windows, rounds...)
	fmt.Fprintf(b.out, "%3d in flight, %5s a call: %4.0f orders/s; ideally %4.0f, by the cores and the ideal %4.0f; ratio %.2f\n", inFlight, delay,
		median(rounds, func(w window) float64 { return w.Orders }), ideal,
		median(rounds, func(w window) float64 { return w.Floor }),
		median(rounds, func(w window) float64 { return w.Orders / w.Floor }))
	return errors.Join(prompt.audit(ctx), late.audit(ctx))
}

// inFlight returns the rate of orders once all clients are under way.
func (s *shop) inFlight(ctx context.Context, clients, round int, duration time.Duration) (rate float64, err error) {
	report := load.Closed(ctx, clients, settling+duration, s.insist(s.doors, fmt.Sprintf("flight-%d", round)))
	if err := allMade(report); err != nil {
		return 0, err
	}
	settled := report.Only(func(r load.Request) bool {
		end := r.At + r.Took
		return end >= settling && end < settling+duration
	})
	return float64(len(settled.Requests)) / duration.Seconds(), nil
}
