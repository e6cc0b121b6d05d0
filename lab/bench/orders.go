package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"example.com/orders-api/lab/measure"
)

// window is one measurement, as -record writes it.
type window struct {
	Scenario   string
	Clients    int
	Round      int
	Orders     float64       // per second
	Floor      float64       // per second: the reference of the ratio
	P50, P99   time.Duration // of an order
	WAL        float64       // bytes per order
	FloorWAL   float64
	API        float64 // CPU seconds per order, as the next four
	Least      float64 // the baseline program
	PostgreSQL float64
	Fake       float64
	Load       float64 // this process
	Replays    float64 // per second
	Memory     uint64  // peak resident bytes
}

// orders measures orders and replays at each number of clients, in alternation with the
// floor.
func (b *bench) orders(ctx context.Context) (err error) {
	s, err := b.startSystem(ctx, 0, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	f, err := b.openFloor(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	measure.Closed(ctx, slices.Max(b.clients), 3*time.Second, s.createOrders(s.clients, "warm"))

	b.printHeader()
	for _, clients := range b.clients {
		var rounds []window
		for round := range b.rounds {
			w := window{Scenario: "orders", Clients: clients, Round: round + 1}
			if err := s.measure(ctx, s.clients, &w); err != nil {
				return err
			}
			if w.Floor, w.FloorWAL, err = f.run(ctx, clients, b.window); err != nil {
				return err
			}
			rounds = append(rounds, w)
		}
		b.windows = append(b.windows, rounds...)
		b.printRow(rounds)
	}
	roundTrips, commits, err := s.countRoundTrips(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(b.out, "each order: %.3f commits, %.3f round trips to the database\n", commits, roundTrips)
	return s.audit(ctx)
}

// measure creates orders for a window and replays them for half of one.
func (s *system) measure(ctx context.Context, clients []*measure.Client, w *window) error {
	name := fmt.Sprintf("%s-%d-%d", w.Scenario, w.Clients, w.Round)
	walBefore, err := s.bench.WAL(ctx)
	if err != nil {
		return err
	}
	before, err := s.usage()
	if err != nil {
		return err
	}
	report := measure.Closed(ctx, w.Clients, s.bench.window, s.createOrders(clients, name))
	after, err := s.usage()
	if err != nil {
		return err
	}
	walAfter, err := s.bench.WAL(ctx)
	if err != nil {
		return err
	}
	if err := allCreated(report); err != nil {
		return err
	}
	n := len(report.Requests)
	latency := report.Percentiles(0.5, 0.99)
	cost := after.since(before).per(n)
	w.Orders, w.P50, w.P99 = report.Rate(), latency[0], latency[1]
	w.WAL = float64(walAfter-walBefore) / float64(n)
	w.API, w.PostgreSQL, w.Fake, w.Load = cost.api, cost.postgres, cost.stripe, cost.load
	if w.Memory, err = s.peakMemory(); err != nil {
		return err
	}
	replays := measure.Closed(ctx, w.Clients, s.bench.window/2, s.replay(clients, name, n))
	if bad := replays.Statuses()[0]; bad > 0 {
		return fmt.Errorf("%d of %d replays failed", bad, len(replays.Requests))
	}
	w.Replays = replays.Rate()
	return ctx.Err()
}

func allCreated(report measure.Report) error {
	for _, r := range report.Requests {
		if r.Err != nil || r.Status != http.StatusCreated {
			return errors.Join(fmt.Errorf("not every response has status 201: %v", report.Statuses()), r.Err)
		}
	}
	return nil
}

// countRoundTrips returns the round trips and commits per order of an API process behind
// a [measure.CountingProxy].
func (s *system) countRoundTrips(ctx context.Context) (roundTrips, commits float64, err error) {
	proxy, err := measure.NewCountingProxy(ctx, s.database)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, proxy.Close()) }()
	if err := s.startAPI(ctx, proxy.URL); err != nil {
		return 0, 0, err
	}
	proxied := s.clients[len(s.clients)-1:]
	measure.Closed(ctx, 16, 3*time.Second, s.createOrders(proxied, "count-warm"))
	proxy.Reset()
	counted := measure.Closed(ctx, 16, 3*time.Second, s.createOrders(proxied, "count"))
	orders := float64(len(counted.WithStatus(http.StatusCreated).Requests))
	return float64(proxy.RoundTrips.Load()) / orders, float64(proxy.Commits.Load()) / orders, nil
}

// processes compares two API processes with one, on the same cores and database. Both
// always run; only the target of the requests changes.
func (b *bench) processes(ctx context.Context) (err error) {
	s, err := b.startSystem(ctx, 0, 2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	clients := slices.Max(b.clients)
	measure.Closed(ctx, clients, b.window/2, s.createOrders(s.clients, "warm"))

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
