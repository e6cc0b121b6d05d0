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
	"os"
	"os/signal"
	"path/filepath"
	"slices"
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
