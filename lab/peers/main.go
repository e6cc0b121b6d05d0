// Command peers compares this program with what people would use instead: `make -C lab peers`.
//
// Each peer is a program of programs/, which is a module of its own, and serves the
// same POST /v1/orders: a pending order, a PaymentIntent, its confirm, the paid order, a staged
// job and audit records. All run against the same private PostgreSQL, with a fake Stripe of
// their own and the same clients.
//
// The first part measures each peer by turns. Only one of them runs at a time, so none pays
// for another one's background work. The second part kills the process at random moments and
// loses responses, while clients send the same request until they get a final answer. It then
// compares the answers with the fake's ledger and the peer's tables.
//
// Results are written to results.json, from which the tables of README.md are generated.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"example.com/orders-api/lab/measure"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

type options struct {
	clients []int
	rounds  int
	window  time.Duration
	kills   int
	lost    int
	only    []string
	record  string
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	clients := flags.String("clients", "16,64", "numbers of clients, measured one after the other; empty: none")
	only := flags.String("only", "", "names of the peers that run; empty: all")
	flags.IntVar(&o.rounds, "rounds", 5, "number of rounds; in each, every peer has a turn")
	flags.DurationVar(&o.window, "window", 2*time.Second, "duration of one measurement")
	flags.IntVar(&o.kills, "kills", 200, "number of kills of each peer")
	flags.IntVar(&o.lost, "lost", 50, "number of lost responses of each peer")
	flags.StringVar(&o.record, "record", "", "file whose results are replaced by those of this run")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	for text := range strings.FieldsFuncSeq(*clients, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return o, fmt.Errorf("-clients %q: expected numbers such as 16,64", *clients)
		}
		o.clients = append(o.clients, n)
	}
	o.only = strings.FieldsFunc(*only, func(r rune) bool { return r == ',' })
	if flags.NArg() > 0 || o.rounds < 1 || o.window < time.Second || o.kills < 0 || o.lost < 0 {
		flags.Usage()
		return o, errors.New("invalid arguments")
	}
	return o, nil
}

// lab starts peers on one PostgreSQL.
type lab struct {
	options
	*measure.PostgreSQL
	out     io.Writer
	results results
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	l := &lab{options: o, out: out}
	if err := l.results.read(o.record); err != nil {
		return err
	}
	peers := slices.DeleteFunc(all(), func(p peer) bool { return len(o.only) > 0 && !slices.Contains(o.only, p.name) })
	for _, p := range peers {
		if err := p.build(ctx); err != nil {
			return err
		}
	}
	if l.PostgreSQL, err = measure.Start(ctx, out); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if len(o.clients) > 0 {
		if err := l.measure(ctx, peers); err != nil {
			return err
		}
	}
	for _, p := range peers {
		if err := l.disturb(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}
