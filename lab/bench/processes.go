package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"example.com/orders-api/lab/load"
	"example.com/orders-api/lab/measure"
)

// processes compares two API processes with one, on the same cores and database. Both
// always run; only the target of the requests changes.
func (b *bench) processes(ctx context.Context) (err error) {
	s, err := b.startSystem(ctx, 0, 2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	clients := slices.Max(b.clients)
	load.Closed(ctx, clients, b.window/2, s.createOrders(s.clients, "warm"))

	var ratios []window
	for round := range b.rounds {
		one := window{Scenario: "one-process", Clients: clients, Round: round + 1}
		two := window{Scenario: "two-processes", Clients: clients, Round: round + 1}
		if err := errors.Join(s.measure(ctx, s.clients[:1], &one), s.measure(ctx, s.clients, &two)); err != nil {
			return err
		}
		two.Floor = one.Orders // the reference of the ratio
		b.windows = append(b.windows, one, two)
		ratios = append(ratios, two)
	}
	fmt.Fprintf(b.out, "\ntwo processes on one database, %d clients: %.0f orders/s; one: %.0f; ratio %.2f; no errors\n", clients,
		measure.Median(ratios, func(w window) float64 { return w.Orders }),
		measure.Median(ratios, func(w window) float64 { return w.Floor }),
		measure.Median(ratios, func(w window) float64 { return w.Orders / w.Floor }))
	return s.audit(ctx)
}
