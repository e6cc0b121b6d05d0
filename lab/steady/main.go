// Command steady finds slow leaks: `make -C lab steady`. For an hour, it sends orders at a
// constant rate to `orders serve`, with the worker, the completer and the reaper as services and
// the other commands as cron jobs, on a durable PostgreSQL. All durations are short, so that each
// key is created, finished, abandoned, resumed and reaped within minutes.
//
// After a warm-up it divides the rest into three parts, and fails if the last part needs more
// than the first one of anything that a leak would show in: memory, goroutines, descriptors,
// sessions, dead rows, tables whose rows are deleted, WAL and time per order.
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
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

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
	warm, duration, every time.Duration
	rate                  float64
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	var o options
	flags := flag.NewFlagSet("steady", flag.ContinueOnError)
	flags.DurationVar(&o.warm, "warm", 10*time.Minute, "load before the first sample")
	flags.DurationVar(&o.duration, "duration", time.Hour, "load during the samples")
	flags.DurationVar(&o.every, "every", 10*time.Second, "interval of the samples")
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

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	jobs, ctx := errgroup.WithContext(ctx)
	jobs.Go(func() error {
		s.cron(ctx)
		return nil
	})
	var samples []sample
	jobs.Go(func() error {
		samples, err = s.collect(ctx, o)
		return err
	})
	c := newClients(s.address, s.stripeURL, s.apiKey)
	report := measure.Open(ctx, o.rate, o.warm+o.duration, 500, c.send)
	cancel()
	if err := jobs.Wait(); err != nil {
		return err
	}
	return errors.Join(judge(samples, report, o, out), s.audit(context.WithoutCancel(ctx), report, c.retries.Load(), out))
}
