package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/orders-api/lab/measure"
)

// rampUp is the time until all clients have an order in flight. Most of their first
// requests are rejected with a Retry-After of some seconds.
const rampUp = 6 * time.Second

// slowProvider measures the throughput with a slow provider. The ideal rate is the number
// of orders in flight divided by the duration of an order's two provider calls. If the
// cores cannot reach it, the bound is the rate without a delay, measured in alternation.
func (b *bench) slowProvider(ctx context.Context) error {
	fmt.Fprintf(b.out, "\na slow provider, on a pool of 10 connections\n")
	return errors.Join(
		b.slowProviderCase(ctx, 200, 250*time.Millisecond),
		b.slowProviderCase(ctx, 500, 2*time.Second),
		b.slowProviderCase(ctx, 500, 250*time.Millisecond), // more than two cores can do
	)
}

func (b *bench) slowProviderCase(ctx context.Context, inFlight int, delay time.Duration) (err error) {
	fast, err := b.startSystem(ctx, 0, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fast.stop()) }()
	slow, err := b.startSystem(ctx, delay, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, slow.stop()) }()

	ideal := float64(inFlight) / (2 * delay).Seconds()
	var rounds []window
	for round := range b.rounds {
		cores, err := fast.inFlight(ctx, inFlight, 2*delay, round, b.window)
		if err != nil {
			return err
		}
		rate, err := slow.inFlight(ctx, inFlight, 2*delay, round, max(b.window, 5*delay))
		if err != nil {
			return err
		}
		rounds = append(rounds, window{
			Scenario: "slow-provider-" + delay.String(), Clients: inFlight, Round: round + 1,
			Orders: rate, Floor: min(ideal, cores),
		})
	}
	b.windows = append(b.windows, rounds...)
	fmt.Fprintf(b.out, "%3d in flight, %5s per call: %4.0f orders/s; ideal %4.0f, lower of ideal and cores %4.0f; ratio %.2f\n", inFlight, delay,
		measure.Median(rounds, func(w window) float64 { return w.Orders }), ideal,
		measure.Median(rounds, func(w window) float64 { return w.Floor }),
		measure.Median(rounds, func(w window) float64 { return w.Orders / w.Floor }))
	return errors.Join(fast.audit(ctx), slow.audit(ctx))
}

// inFlight returns the orders per second after the ramp-up. The clients begin one after the
// other during spread, because clients in step complete in waves, and a window counts two or
// three of them.
func (s *system) inFlight(ctx context.Context, clients int, spread time.Duration, round int, duration time.Duration) (rate float64, err error) {
	create := s.createWithRetries(fmt.Sprintf("flight-%d", round))
	report := measure.Closed(ctx, clients, rampUp+duration, func(ctx context.Context, i int) (int, error) {
		if i < clients {
			time.Sleep(spread * time.Duration(i) / time.Duration(clients))
		}
		return create(ctx, i)
	})
	if err := allCreated(report); err != nil {
		return 0, err
	}
	return report.EndedWithin(rampUp, duration).Rate(), nil
}
