// Command steady finds slow leaks: `make -C lab steady`. For an hour, it sends orders at a
// constant rate to `orders serve`, with the worker, the completer and the reaper as services and
// the other commands as cron jobs, on a durable PostgreSQL. All durations are short, so that each
// key is created, finished, abandoned, resumed and reaped within minutes.
//
// After a warm-up it divides the rest into three parts, and fails if the last part needs more
// than the first one of anything that a leak would show in: memory, dead rows, tables whose rows
// are deleted, WAL and time per order. Goroutines, descriptors and sessions are counted after each
// part, when the clients have paused until every pool has closed its idle connections, because
// under load these counts follow the requests that are open, and so the machine's other programs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"example.com/orders-api/lab/measure"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "steady:", err)
		os.Exit(1)
	}
}

type options struct {
	warm, duration, every, pause time.Duration
	rate                         float64
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	var o options
	flags := flag.NewFlagSet("steady", flag.ContinueOnError)
	flags.DurationVar(&o.warm, "warm", 10*time.Minute, "load before the first sample")
	flags.DurationVar(&o.duration, "duration", time.Hour, "load during the samples")
	flags.DurationVar(&o.every, "every", 10*time.Second, "interval of the samples")
	flags.DurationVar(&o.pause, "pause", 4*time.Minute, "pause after each part, before its goroutines are counted")
	flags.Float64Var(&o.rate, "rate", 25, "requests per second")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.duration < 6*o.every {
		return fmt.Errorf("-duration %s is too short for three parts", o.duration)
	}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	s, err := start(ctx, filepath.Dir(executable), out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()

	cronCtx, stopCron := context.WithCancel(ctx)
	cronJobs := make(chan struct{})
	go func() {
		defer close(cronJobs)
		s.cron(cronCtx)
	}()
	c := newClients(s.address, s.stripeURL, s.apiKey)
	var all [parts + 1]part // the first one is the warm-up
	for i, duration := range append([]time.Duration{o.warm}, slices.Repeat([]time.Duration{o.duration / parts}, parts)...) {
		if all[i], err = s.measure(ctx, c, o, duration); err != nil {
			break
		}
	}
	stopCron()
	<-cronJobs
	if err != nil {
		return err
	}
	return errors.Join(judge(all[1:], out), s.audit(ctx, all[:], c.retries.Load(), out))
}

// part has what was measured during one part of the load and in the pause after it.
type part struct {
	samples []sample
	counts  map[string]float64 // at rest
	report  measure.Report
}

func (s *system) measure(ctx context.Context, c *clients, o options, duration time.Duration) (p part, err error) {
	load, stop := context.WithCancel(ctx)
	defer stop()
	sampled := make(chan error)
	go func() {
		var err error
		p.samples, err = s.collect(load, o.every)
		if err != nil {
			stop()
		}
		sampled <- err
	}()
	p.report = measure.Open(load, o.rate, duration, 500, c.send)
	stop()
	if err := <-sampled; err != nil {
		return p, err
	}
	c.http.CloseIdleConnections()
	select {
	case <-ctx.Done():
		return p, ctx.Err()
	case <-time.After(o.pause):
	}
	p.counts, err = s.counts(ctx)
	return p, err
}

// sample has the figures of one moment by name, whose last word is the unit.
type sample struct {
	figures map[string]float64
	records float64 // bytes of WAL records so far, without images
	images  float64 // bytes of WAL that are images of whole pages
	cpu     float64 // milliseconds that serve used so far
	orders  float64 // inserted so far
}

const parts = 3

// tolerance bounds what the last part may need compared with the first one, because garbage
// collections, vacuums and checkpoints make every figure vary. The slack, in the figure's unit,
// is for small values.
func tolerance(name string) (factor, slack float64) {
	switch name[strings.LastIndex(name, " ")+1:] {
	case "MiB":
		return 1.10, 2
	case "rows":
		return 1.25, 500
	case "CPU-ms", "bytes":
		return 1.25, 0
	case "ms", "image-bytes": // printed only: lab/results/README.md says why
		return math.Inf(1), 0
	default: // goroutines, descriptors or sessions
		return 1.10, 2
	}
}

// judge prints each figure of each part, and returns an error that names those that grew.
func judge(all []part, out io.Writer) error {
	var figures [parts]map[string]float64
	for i, p := range all {
		figures[i] = summarize(p)
	}
	var grown error
	for _, name := range slices.Sorted(maps.Keys(figures[0])) {
		first, last := figures[0][name], figures[parts-1][name]
		fmt.Fprintf(out, "%s  %.4g  %.4g  %.4g\n", name, first, figures[1][name], last)
		factor, slack := tolerance(name)
		if last > first*factor+slack {
			grown = errors.Join(grown, fmt.Errorf("%s grew from %.4g to %.4g", name, first, last))
		}
	}
	return grown
}

// summarize returns the mean of each figure and the counts at rest. WAL and CPU time are divided by
// the orders between the first and the last sample.
func summarize(p part) map[string]float64 {
	figures := maps.Clone(p.counts)
	for _, s := range p.samples {
		for name, value := range s.figures {
			figures[name] += value / float64(len(p.samples))
		}
	}
	if len(p.samples) > 1 {
		from, to := p.samples[0], p.samples[len(p.samples)-1]
		figures["WAL records of an order, bytes"] = (to.records - from.records) / (to.orders - from.orders)
		figures["WAL page images of an order, image-bytes"] = (to.images - from.images) / (to.orders - from.orders)
		figures["serve: CPU of an order, CPU-ms"] = (to.cpu - from.cpu) / (to.orders - from.orders)
	}
	latency := p.report.Percentiles(0.5, 0.99)
	figures["order: p50 ms"] = float64(latency[0].Microseconds()) / 1000
	figures["order: p99 ms"] = float64(latency[1].Microseconds()) / 1000
	return figures
}
