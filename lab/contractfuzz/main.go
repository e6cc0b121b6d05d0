// Command contractfuzz generates valid and invalid requests from openapi.yaml and
// api/openapi.service.yaml, sends them to a server, and checks each response against them. Its validator differs from
// that of the API's tests, so a bug of one is detected.
//
//	make -C lab contract-fuzz
//	make -C lab contract-fuzz FUZZ='-seed 7 -requests 100000'
//	bin/contractfuzz -url http://localhost:8080 -key ok_…
//
// A sequence of requests depends only on the seed and its number, so -seed and -sequence
// repeat it. Timing does not repeat. It determines which of several concurrent requests
// is executed, and the content of lists.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
)

type options struct {
	seed             uint64
	requests         int
	connections      int
	sequence         int
	url, key, secret string
	program, specs   string
	nginx            bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "contractfuzz:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	var o options
	flags := flag.NewFlagSet("contractfuzz", flag.ContinueOnError)
	flags.Uint64Var(&o.seed, "seed", rand.Uint64N(1_000_000_000), "seed of the requests")
	flags.IntVar(&o.requests, "requests", 20_000, "approximate number of requests")
	flags.IntVar(&o.connections, "connections", 8, "number of concurrent sequences")
	flags.IntVar(&o.sequence, "sequence", -1, "send only the sequence with this number")
	flags.StringVar(&o.url, "url", "", "URL of a running server, which charges the orders")
	flags.StringVar(&o.key, "key", "", "API key, with -url")
	flags.StringVar(&o.secret, "webhook-secret", "", "secret that signs events, with -url")
	flags.BoolVar(&o.nginx, "nginx", false, "with -url: the server is behind nginx, which rejects some requests by itself")
	flags.StringVar(&o.program, "orders", "bin/orders", "program beside which the playground is, without -url")
	flags.StringVar(&o.specs, "specs", ".", "folder of openapi.yaml and api/openapi.service.yaml")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || o.connections < 1 || (o.url == "") != (o.key == "") {
		return errors.New("invalid arguments; -url and -key belong together")
	}
	contract, err := readContract(o.specs)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "seed %d\n", o.seed)
	var started *server
	if o.url == "" {
		if started, err = startServer(ctx, o.program); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, started.stop()) }()
		o.url, o.key, o.secret = started.url, started.apiKey, webhookSecret
	}
	base, err := url.Parse(o.url)
	if err != nil {
		return err
	}
	f := newFuzzer(contract, base, o.key, o.seed)
	f.secret, f.nginx, f.run = o.secret, o.nginx, "fz"
	if started != nil {
		f.provider = started.stripePage
	} else {
		f.run += strconv.FormatInt(time.Now().Unix()%46_656, 36) // keys of earlier runs are used
	}
	return f.fuzz(ctx, o, started, out)
}

// fuzz returns an error if there are violations.
func (f *fuzzer) fuzz(ctx context.Context, o options, started *server, out io.Writer) error {
	start := time.Now()
	since := start.UTC().Format("2006-01-02T15:04:05.000000Z")
	var all sync.WaitGroup
	for number := range o.connections {
		if o.sequence >= 0 {
			f.sequence(ctx, o.sequence)
			break
		}
		all.Go(func() { f.connection(ctx, number, o.connections, o.requests/o.connections) })
	}
	all.Wait()
	took := time.Since(start)
	last := &sequence{fuzzer: f, ctx: ctx, number: -1, g: generator{rand.New(rand.NewPCG(f.seed, 0)), smallest}}
	f.ledger(last, since)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, kind := range sortedKeys(f.requests) {
		fmt.Fprintf(out, "%s %7d\n", kind, f.requests[kind])
	}
	var differs error
	if started != nil {
		report, err := started.reconcile(ctx, len(f.paid))
		fmt.Fprint(out, report)
		if err != nil {
			differs = fmt.Errorf("orders reconcile: %w", err)
		}
	}
	for _, id := range sortedKeys(f.violations) {
		v := f.violations[id]
		fmt.Fprintf(out, "\nVIOLATION (%d times) in %s: %s\n%s  repeat with -seed %d -sequence %d\n",
			v.count, v.exchange.operation.id, v.text, v.exchange, f.seed, v.sequence)
	}
	fmt.Fprintf(out, "%d requests, %d paid orders, %d checks besides those of each response, %.1f seconds, seed %d: %d kinds of violations\n",
		f.total, len(f.paid), f.checks, took.Seconds(), f.seed, len(f.violations))
	if len(f.violations) > 0 {
		return errors.Join(differs, errors.New("the server violates its contract"))
	}
	return differs
}
