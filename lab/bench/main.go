// Command bench measures the API against the limit of its database, on one machine and in
// one run: `make -C lab bench`.
//
// It runs a private PostgreSQL with durable settings, the fake Stripe (cmd/stripetest)
// and `orders serve` as separate processes. An increasing number of clients creates
// orders. Absolute figures drift between machines and between hours, so the results are
// ratios to two references:
//
//   - The floor is pgbench with the SQL of an order's transactions, on the same server
//     and with as many clients. API and floor alternate. See floor.sql.
//   - The baseline is a minimal net/http program with an order's round trips and provider
//     calls. The scenario "least" compares CPU time per order. See baseline.go.
//
// After each scenario an audit compares the number of 201 responses with those of paid
// orders and receipts, and runs `orders reconcile`. Only "least" has no audit, because
// the baseline stores generated payment ids.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process
	var err error
	if len(os.Args) == 2 && os.Args[1] == baselineCommand {
		err = serveBaseline(ctx, os.Getenv)
	} else {
		err = run(ctx, os.Args[1:], os.Stdout)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	clients []int
	rounds  int
	window  time.Duration
	only    string
	record  string
	against string
}

type scenario struct {
	name string
	run  func(context.Context) error
}

// scenarios returns all scenarios in the order in which they run.
func (b *bench) scenarios() []scenario {
	return []scenario{
		{"orders", b.orders},
		{"least", b.least},
		{"slow-provider", b.slowProvider},
		{"processes", b.processes},
		{"overload", b.overload},
		{"insistent", b.insistent},
		{"against", b.compare},
	}
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	clients := flags.String("clients", "1,16,64", "numbers of clients, measured one after the other")
	flags.IntVar(&o.rounds, "rounds", 3, "number of rounds; API and floor alternate in each")
	flags.DurationVar(&o.window, "window", 8*time.Second, "duration of one measurement")
	flags.StringVar(&o.only, "only", "", "run only this scenario")
	flags.StringVar(&o.record, "record", "", "write the raw numbers to this file")
	flags.StringVar(&o.against, "against", "", "folder with the programs of another build (orders, stripetest) to compare with")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	for text := range strings.SplitSeq(*clients, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return o, fmt.Errorf("-clients %q: expected numbers such as 1,16,64", *clients)
		}
		o.clients = append(o.clients, n)
	}
	if flags.NArg() > 0 || o.rounds < 1 || o.window < time.Second {
		flags.Usage()
		return o, errors.New("invalid arguments")
	}
	return o, nil
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	b, err := open(ctx, o, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	known := false
	for _, s := range b.scenarios() {
		if o.only != "" && o.only != s.name {
			continue
		}
		known = true
		if err := s.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if !known {
		return fmt.Errorf("-only %q: unknown scenario", o.only)
	}
	return b.save()
}
