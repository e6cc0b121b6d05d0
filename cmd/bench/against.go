package main

import (
	"context"
	"errors"
	"fmt"

	"example.com/orders-api/internal/load"
)

// compare measures this build in turns with another one, on one PostgreSQL.
func (b *bench) compare(ctx context.Context) (err error) {
	if b.against == "" {
		return nil
	}
	ours, err := b.openShop(ctx, 0, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ours.close()) }()
	theirs, err := b.openShopOf(ctx, b.against, 0, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, theirs.close()) }()

	fmt.Fprintf(b.out, "\nin turns with %s: medians of %d rounds of %s\n", b.against, b.rounds, b.window)
	fmt.Fprintf(b.out, "%8s %10s %10s %7s %9s %9s %7s %9s %9s %7s\n",
		"clients", "orders/s", "against", "ratio", "api ms", "against", "ratio", "replays/s", "against", "ratio")
	for _, clients := range b.clients {
		for _, s := range []*shop{ours, theirs} {
			load.Closed(ctx, clients, b.window/2, s.buy(s.doors, fmt.Sprintf("warm-%d", clients)))
		}
		var a, z []window
		for round := range b.rounds {
			our := window{Scenario: "ours", Clients: clients, Round: round + 1}
			their := window{Scenario: "against", Clients: clients, Round: round + 1}
			measure := []func() error{
				func() error { return ours.measure(ctx, ours.doors, &our) },
				func() error { return theirs.measure(ctx, theirs.doors, &their) },
			}
			if round%2 == 1 { // whatever comes first has no advantage
				measure[0], measure[1] = measure[1], measure[0]
			}
			if err := errors.Join(measure[0](), measure[1]()); err != nil {
				return err
			}
			a, z = append(a, our), append(z, their)
		}
		b.windows = append(append(b.windows, a...), z...)
		ratio := func(get func(window) float64) float64 {
			ratios := make([]window, len(a))
			for i := range a {
				ratios[i].Orders = get(a[i]) / get(z[i])
			}
			return median(ratios, func(w window) float64 { return w.Orders })
		}
		rate := func(w window) float64 { return w.Orders }
		cpu := func(w window) float64 { return w.API * 1000 }
		replays := func(w window) float64 { return w.Replays }
		fmt.Fprintf(b.out, "%8d %10.0f %10.0f %7.2f %9.2f %9.2f %7.2f %9.0f %9.0f %7.2f\n", clients,
			median(a, rate), median(z, rate), ratio(rate), median(a, cpu), median(z, cpu), ratio(cpu),
			median(a, replays), median(z, replays), ratio(replays))
	}
	return errors.Join(ours.audit(ctx), theirs.audit(ctx))
}
