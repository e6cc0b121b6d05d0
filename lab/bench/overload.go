package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/orders-api/lab/measure"
)

// overload offers orders at a constant rate, independent of the responses. The rates are
// that of 16 clients, measured just before, then three times and half that rate.
func (b *bench) overload(ctx context.Context) (err error) {
	s, err := b.startSystem(ctx, 0, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	measure.Closed(ctx, 64, 3*time.Second, s.createOrders(s.clients, "warm"))

	fmt.Fprintf(b.out, "\noverload: the rate of 16 clients, then a constant offered rate; medians of %d rounds of %s\n", b.rounds, b.window)
	fmt.Fprintf(b.out, "%10s %10s %9s %7s %8s %8s %9s %9s %9s %7s\n",
		"16 clients", "offered/s", "orders/s", "ratio", "p50", "p99", "shed/s", "shed p50", "shed p99", "RSS")
	for _, times := range []float64{1, 3, 0.5} {
		var rounds []overloadRound
		for round := range b.rounds {
			name := fmt.Sprintf("times-%g-%d", times, round)
			closed := measure.Closed(ctx, 16, b.window/2, s.createOrders(s.clients, "capacity-"+name))
			if err := allCreated(closed); err != nil {
				return err
			}
			report := measure.Open(ctx, times*closed.Rate(), b.window, 20_000, s.createOrders(s.clients, name))
			result, err := s.overloadRound(closed.Rate(), times, report)
			if err != nil {
				return err
			}
			rounds = append(rounds, result)
		}
		b.printOverload(rounds)
	}
	if err := s.retryUnfinished(ctx); err != nil {
		return err
	}
	return s.audit(ctx)
}

type overloadRound struct {
	capacity, rate, created, shed float64         // per second; rate is the offered one
	createdLatency, shedLatency   []time.Duration // 50th and 99th percentile
	memory                        uint64
	recovery                      time.Duration // see recoveryTime
}

// overloadRound summarises a report. A response other than created or shed is an error.
func (s *system) overloadRound(capacity, times float64, report measure.Report) (overloadRound, error) {
	if err := allCreatedOrShed(report); err != nil {
		return overloadRound{}, err
	}
	if report.Dropped > 0 {
		return overloadRound{}, fmt.Errorf("%d requests could not be sent", report.Dropped)
	}
	created := report.WithStatus(http.StatusCreated)
	shed := report.Filter(func(r measure.Request) bool { return r.Status != http.StatusCreated })
	memory, err := s.peakMemory()
	return overloadRound{
		capacity: capacity, rate: times * capacity, created: created.Rate(), shed: shed.Rate(),
		createdLatency: created.Percentiles(0.5, 0.99), shedLatency: shed.Percentiles(0.5, 0.99), memory: memory, recovery: recoveryTime(report),
	}, err
}

func (b *bench) printOverload(rounds []overloadRound) {
	rate := func(get func(overloadRound) float64) float64 { return measure.Median(rounds, get) }
	latency := func(get func(overloadRound) time.Duration) string {
		return milliseconds(measure.Median(rounds, func(o overloadRound) float64 { return float64(get(o)) }))
	}
	fmt.Fprintf(b.out, "%10.0f %10.0f %9.0f %7.2f %8s %8s %9.0f %9s %9s %4.0fMiB\n",
		rate(func(o overloadRound) float64 { return o.capacity }),
		rate(func(o overloadRound) float64 { return o.rate }),
		rate(func(o overloadRound) float64 { return o.created }),
		rate(func(o overloadRound) float64 { return o.created / o.capacity }),
		latency(func(o overloadRound) time.Duration { return o.createdLatency[0] }),
		latency(func(o overloadRound) time.Duration { return o.createdLatency[1] }),
		rate(func(o overloadRound) float64 { return o.shed }),
		latency(func(o overloadRound) time.Duration { return o.shedLatency[0] }),
		latency(func(o overloadRound) time.Duration { return o.shedLatency[1] }),
		rate(func(o overloadRound) float64 { return float64(o.memory) / (1 << 20) }))
	if rounds[0].rate < rounds[0].capacity {
		fmt.Fprintf(b.out, "the last request that was shed, or took longer than a second, was due %s after the overload\n",
			latency(func(o overloadRound) time.Duration { return o.recovery }))
	}
	for _, o := range rounds {
		b.windows = append(b.windows, window{
			Scenario: fmt.Sprintf("offered %.0f/s", o.rate), Orders: o.created, Floor: o.capacity, P50: o.createdLatency[0], P99: o.createdLatency[1], Memory: o.memory,
		})
	}
}

// recoveryTime returns the due time of the last request that was shed or took longer than
// a second, since the start.
func recoveryTime(report measure.Report) time.Duration {
	var last time.Duration
	for _, r := range report.Requests {
		if r.Status != http.StatusCreated || r.Latency > time.Second {
			last = max(last, r.At)
		}
	}
	return last
}

// retryUnfinished retries each request whose key is claimed but not finished. Most
// rejected requests have claimed no key.
func (s *system) retryUnfinished(ctx context.Context) error {
	rows, err := s.pool.Query(ctx, "SELECT idempotency_key FROM idempotency_keys WHERE finished_at IS NULL")
	if err != nil {
		return err
	}
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, key := range keys {
		response, err := s.retrying.Do(ctx, s.order(key))
		if err != nil {
			return err
		}
		if !response.Replayed() {
			s.created.Add(1)
		}
	}
	fmt.Fprintf(s.bench.out, "unfinished afterwards, and retried: %d\n", len(keys))
	return nil
}

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
	measure.Closed(ctx, 64, 3*time.Second, fast.createOrders(fast.clients, "warm"))

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
			capacity := measure.Closed(ctx, 16, b.window/2, fast.createOrders(fast.clients, fmt.Sprintf("capacity-%s-%d", name[:3], round+10*v.clients)))
			bound := capacity.WithStatus(http.StatusCreated).Rate()
			if v.ideal > 0 {
				bound = min(bound, v.ideal)
			}
			report := measure.Closed(ctx, v.clients, firstOrders+b.window, v.system.createOrders(v.system.clients, fmt.Sprintf("insist-%d-%d", v.clients, round)))
			if err := allCreatedOrShed(report); err != nil {
				return err
			}
			report = report.EndedWithin(firstOrders, b.window)
			created := report.WithStatus(http.StatusCreated)
			rejected := report.Filter(func(r measure.Request) bool { return r.Status != http.StatusCreated })
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
	return errors.Join(fast.retryUnfinished(ctx), slow.retryUnfinished(ctx), fast.audit(ctx), slow.audit(ctx))
}

func allCreatedOrShed(report measure.Report) error {
	for status := range report.Statuses() {
		switch status {
		case http.StatusCreated, http.StatusServiceUnavailable:
		default:
			return fmt.Errorf("statuses other than created and rejected: %v", report.Statuses())
		}
	}
	return nil
}

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
