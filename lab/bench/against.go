package main

import (
	"context"
	"errors"
	"fmt"

	"example.com/orders-api/lab/measure"
)

// compare measures this build and that of -against in alternation, on one PostgreSQL.
func (b *bench) compare(ctx context.Context) (err error) {
	if b.against == "" {
		return nil
	}
	current, err := b.startSystem(ctx, 0, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, current.stop()) }()
	other, err := b.startSystemFrom(ctx, b.against, 0, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, other.stop()) }()

	fmt.Fprintf(b.out, "\nin alternation with %s: medians of %d rounds of %s\n", b.against, b.rounds, b.window)
	fmt.Fprintf(b.out, "%8s %10s %10s %7s %9s %9s %7s %9s %9s %7s\n",
		"clients", "orders/s", "against", "ratio", "api ms", "against", "ratio", "replays/s", "against", "ratio")
	for _, clients := range b.clients {
		for _, s := range []*system{current, other} {
			measure.Closed(ctx, clients, b.window/2, s.createOrders(s.clients, fmt.Sprintf("warm-%d", clients)))
		}
		var a, z []window
		for round := range b.rounds {
			currentWindow := window{Scenario: "ours", Clients: clients, Round: round + 1}
			otherWindow := window{Scenario: "against", Clients: clients, Round: round + 1}
			measure := []func() error{
				func() error { return current.measure(ctx, current.clients, &currentWindow) },
				func() error { return other.measure(ctx, other.clients, &otherWindow) },
			}
			if round%2 == 1 { // neither build is always first
				measure[0], measure[1] = measure[1], measure[0]
			}
			if err := errors.Join(measure[0](), measure[1]()); err != nil {
				return err
			}
			a, z = append(a, currentWindow), append(z, otherWindow)
		}
		b.windows = append(append(b.windows, a...), z...)
		ratio := func(get func(window) float64) float64 {
			ratios := make([]window, len(a))
			for i := range a {
				ratios[i].Orders = get(a[i]) / get(z[i])
			}
			return measure.Median(ratios, func(w window) float64 { return w.Orders })
		}
		rate := func(w window) float64 { return w.Orders }
		cpu := func(w window) float64 { return w.API * 1000 }
		replays := func(w window) float64 { return w.Replays }
		fmt.Fprintf(b.out, "%8d %10.0f %10.0f %7.2f %9.2f %9.2f %7.2f %9.0f %9.0f %7.2f\n", clients,
			measure.Median(a, rate), measure.Median(z, rate), ratio(rate), measure.Median(a, cpu), measure.Median(z, cpu), ratio(cpu),
			measure.Median(a, replays), measure.Median(z, replays), ratio(replays))
	}
	return errors.Join(current.audit(ctx), other.audit(ctx))
}
