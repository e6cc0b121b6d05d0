package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"example.com/orders-api/internal/subprocess"
	"example.com/orders-api/lab/measure"
)

// window is one measurement. CPU is in milliseconds per order.
type window struct {
	Peer       string
	Clients    int
	Round      int
	Orders     float64 // per second
	P50, P99   float64 // milliseconds
	WAL        float64 // bytes per order
	API        float64
	Server     float64 // the peer's own
	PostgreSQL float64
}

// measure gives each peer one turn in each round. The first turn rotates.
func (l *lab) measure(ctx context.Context, peers []peer) error {
	var instances []*instance
	for _, p := range peers {
		i, err := l.open(ctx, p, "measure_"+p.name)
		if err != nil {
			return err
		}
		defer i.close()
		instances = append(instances, i)
	}
	for _, clients := range l.clients {
		l.results.Windows = slices.DeleteFunc(l.results.Windows, func(w window) bool { return w.Clients == clients })
		for round := range l.rounds {
			for n := range instances {
				i := instances[(n+round)%len(instances)]
				w := window{Peer: i.name, Clients: clients, Round: round + 1}
				if err := i.turn(ctx, i.database, func() error { return i.measure(ctx, &w) }); err != nil {
					return fmt.Errorf("%s: %w", i.name, err)
				}
				fmt.Fprintf(l.out, "%2d clients, round %d: %-12s %6.0f orders/s, p50 %5.1f ms, p99 %6.1f ms, CPU ms: API %5.2f, PostgreSQL %5.2f, server %5.2f\n",
					clients, round+1, i.name, w.Orders, w.P50, w.P99, w.API, w.PostgreSQL, w.Server)
				l.results.Windows = append(l.results.Windows, w)
			}
		}
	}
	for _, i := range instances {
		if err := i.count(ctx); err != nil {
			return fmt.Errorf("%s: %w", i.name, err)
		}
	}
	return l.results.write(l.record)
}

// turn runs the peer and a fake Stripe for as long as work takes.
func (i *instance) turn(ctx context.Context, database string, work func() error) (err error) {
	address, err := subprocess.FreeAddress(ctx)
	if err != nil {
		return err
	}
	stripe := &subprocess.Process{
		Name:       "stripetest",
		Executable: filepath.Join(programs, "stripetest"),
		Args:       []string{"-addr", address},
		Log:        filepath.Join(i.lab.Folder, "stripetest.log"),
	}
	if err := stripe.Serve(ctx, "http://"+address+"/"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stripe.Kill()) }()
	if err := i.start(ctx, database, "http://"+address); err != nil {
		return err
	}
	return errors.Join(work(), i.stop())
}

func (i *instance) measure(ctx context.Context, w *window) error {
	name := fmt.Sprintf("%d-%d", w.Clients, w.Round)
	if _, err := i.createOrders(ctx, w.Clients, i.lab.window/4, name+"-warm"); err != nil {
		return err
	}
	walBefore, err := i.lab.WAL(ctx)
	if err != nil {
		return err
	}
	before, err := i.lab.CPU()
	if err != nil {
		return err
	}
	report, err := i.createOrders(ctx, w.Clients, i.lab.window, name)
	if err != nil {
		return err
	}
	after, err := i.lab.CPU()
	if err != nil {
		return err
	}
	walAfter, err := i.lab.WAL(ctx)
	if err != nil {
		return err
	}
	orders := float64(len(report.Requests))
	cpu := func(pid int) float64 { return 1000 * (after[pid] - before[pid]) / orders }
	latency := report.Percentiles(0.5, 0.99)
	w.Orders, w.P50, w.P99 = report.Rate(), milliseconds(latency[0]), milliseconds(latency[1])
	w.WAL = float64(walAfter-walBefore) / orders
	w.API, w.PostgreSQL = cpu(i.api.PID()), cpu(i.lab.PID())
	if i.server != nil {
		w.Server = cpu(i.server.PID())
	}
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// createOrders requires that each request creates an order.
func (i *instance) createOrders(ctx context.Context, clients int, duration time.Duration, name string) (measure.Report, error) {
	body := orderBody(3400, "pm_card_visa")
	report := measure.Closed(ctx, clients, duration, func(_ context.Context, n int) (int, error) {
		response, err := i.load.CreateOrder(fmt.Sprintf("peers-%s-%010d", name, n), body)
		return response.Status, err
	})
	for _, r := range report.Requests {
		if r.Err != nil || r.Status != http.StatusCreated {
			return report, errors.Join(fmt.Errorf("not every response has status 201: %v", report.Statuses()), r.Err, ctx.Err())
		}
	}
	i.created += len(report.Requests)
	return report, nil
}

// orderBody is the order of lab/bench, with another amount and card.
func orderBody(amount int64, method string) []byte {
	return fmt.Appendf(nil, `{"email":"buyer@example.com","currency":"usd","payment_method":%q,"items":[`+
		`{"sku":"beans-1kg","description":"Coffee beans, 1 kg","quantity":1,"unit_amount":%d},`+
		`{"sku":"filter-02","description":"Paper filters, 100","quantity":2,"unit_amount":450}],`+
		`"metadata":{"cart":"c-1029","channel":"web"}}`, method, amount-900)
}

// size is what does not depend on the number of clients.
type size struct {
	Peer       string
	RoundTrips float64 // to PostgreSQL, per order
	Commits    float64 // as statements of their own, per order
	Lines      int
}

// count measures the peer behind a [measure.CountingProxy], and compares the responses of
// all turns with the tables.
func (i *instance) count(ctx context.Context) error {
	proxy, err := measure.NewCountingProxy(ctx, i.database)
	if err != nil {
		return err
	}
	defer func() { _ = proxy.Close() }()
	s := size{Peer: i.name}
	err = i.turn(ctx, proxy.URL, func() error {
		if _, err := i.createOrders(ctx, 16, time.Second, "count-warm"); err != nil {
			return err
		}
		proxy.Reset()
		report, err := i.createOrders(ctx, 16, 2*time.Second, "count")
		s.RoundTrips = float64(proxy.RoundTrips.Load()) / float64(len(report.Requests))
		s.Commits = float64(proxy.Commits.Load()) / float64(len(report.Requests))
		return err
	})
	if err != nil {
		return err
	}
	if s.Lines, err = i.lines(ctx); err != nil {
		return err
	}
	i.lab.results.addSize(s)
	fmt.Fprintf(i.lab.out, "%-12s %5.1f round trips, %d lines\n", i.name, s.RoundTrips, s.Lines)

	var paid, jobs int
	err = i.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM orders WHERE status = 'paid'), (SELECT count(*) FROM staged_jobs)`).Scan(&paid, &jobs)
	if err == nil && (paid != i.created || jobs != i.created) {
		err = fmt.Errorf("%d responses with status 201, but %d paid orders and %d jobs", i.created, paid, jobs)
	}
	return err
}

// results is the content of results.json. A run replaces what it measures again. The windows
// of one number of clients are always from one run.
type results struct {
	Windows []window
	Sizes   []size
	Faults  []outcome
}

func (r *results) read(path string) error {
	text, err := os.ReadFile(path) //nolint:gosec // an argument of this program
	if path == "" || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, json.Unmarshal(text, r))
}

func (r *results) write(path string) error {
	if path == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644) //nolint:gosec // not confidential
}

func (r *results) addSize(s size) {
	r.Sizes = replace(r.Sizes, s, func(o size) bool { return o.Peer == s.Peer })
}

func (r *results) addFaults(f outcome) {
	r.Faults = replace(r.Faults, f, func(o outcome) bool { return o.Peer == f.Peer && (o.Kills > 0) == (f.Kills > 0) })
}

func replace[T any](all []T, next T, same func(T) bool) []T {
	return append(slices.DeleteFunc(all, same), next)
}
