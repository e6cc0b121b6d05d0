package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"example.com/orders-api/client"
	"example.com/orders-api/internal/load"
)

// window is what was measured in a few seconds.
type window struct {
	Scenario   string
	Clients    int
	Round      int
	Orders     float64       // a second
	Floor      float64       // a second
	P50, P99   time.Duration // of an order
	WAL        float64       // bytes an order
	FloorWAL   float64
	API        float64 // CPU seconds an order
	Least      float64 // and of the bare API
	PostgreSQL float64
	StandIn    float64
	Load       float64
	Replays    float64 // a second
	Memory     uint64  // bytes, the most so far
}

// orders measures orders and replays at each number of clients, in turns with
// the floor.
func (b *bench) orders(ctx context.Context) (err error) {
	s, err := b.openShop(ctx, 0, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	f, err := b.openFloor(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	// Code is loaded, connections are open and statements prepared.
	load.Closed(ctx, slices.Max(b.clients), 3*time.Second, s.buy(s.doors, "warm"))

	b.head()
	for _, clients := range b.clients {
		var rounds []window
		for round := range b.rounds {
			w := window{Scenario: "orders", Clients: clients, Round: round + 1}
			if err := s.measure(ctx, s.doors, &w); err != nil {
				return err
			}
			if w.Floor, w.FloorWAL, err = f.run(ctx, clients, b.window); err != nil {
				return err
			}
			rounds = append(rounds, w)
		}
		b.windows = append(b.windows, rounds...)
		b.line(rounds)
	}
	roundTrips, commits, err := s.count(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(b.out, "each order: %.3f commits, %.3f round trips to the database\n", commits, roundTrips)
	return s.audit(ctx)
}

// measure fills in what an order and a replay cost.
func (s *shop) measure(ctx context.Context, doors []*client.Client, w *window) error {
	name := fmt.Sprintf("%s-%d-%d", w.Scenario, w.Clients, w.Round)
	walBefore, err := s.bench.wal(ctx)
	if err != nil {
		return err
	}
	before, err := s.usage()
	if err != nil {
		return err
	}
	report := load.Closed(ctx, w.Clients, s.bench.window, s.buy(doors, name))
	after, err := s.usage()
	if err != nil {
		return err
	}
	walAfter, err := s.bench.wal(ctx)
	if err != nil {
		return err
	}
	if err := allMade(report); err != nil {
		return err
	}
	n := len(report.Requests)
	latency := report.Percentiles(0.5, 0.99)
	cost := after.since(before).per(n)
	w.Orders, w.P50, w.P99 = report.Rate(), latency[0], latency[1]
	w.WAL = float64(walAfter-walBefore) / float64(n)
	w.API, w.PostgreSQL, w.StandIn, w.Load = cost.api, cost.postgres, cost.stripe, cost.load
	if w.Memory, err = s.peakMemory(); err != nil {
		return err
	}
	replays := load.Closed(ctx, w.Clients, s.bench.window/2, s.ask(doors, name, n))
	if bad := replays.Statuses()[0]; bad > 0 {
		return fmt.Errorf("%d of %d replays failed", bad, len(replays.Requests))
	}
	w.Replays = replays.Rate()
	return ctx.Err()
}

// allMade returns an error unless every answer was 201.
func allMade(report load.Report) error {
	for _, r := range report.Requests {
		if r.Err != nil || r.Status != http.StatusCreated {
			return errors.Join(fmt.Errorf("not every answer was 201: %v", report.Statuses()), r.Err)
		}
	}
	return nil
}

// count sends some orders through an API process of its own, and returns its
// round trips and commits per order.
func (s *shop) count(ctx context.Context) (roundTrips, commits float64, err error) {
	r, database, err := newRelay(ctx, s.database)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := s.openAPI(ctx, database); err != nil {
		return 0, 0, err
	}
	door := s.doors[len(s.doors)-1:]
	load.Closed(ctx, 16, 3*time.Second, s.buy(door, "count-warm"))
	r.reset()
	counted := load.Closed(ctx, 16, 3*time.Second, s.buy(door, "count"))
	orders := float64(len(counted.Answered(http.StatusCreated).Requests))
	return float64(r.roundTrips.Load()) / orders, float64(r.commits.Load()) / orders, nil
}
