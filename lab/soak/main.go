//go:build unix

// Command soak runs all faults at once and checks that no order is charged twice, lost,
// or gets two different final responses: `make -C lab soak`.
//
// It starts a private PostgreSQL, a fake Stripe and a mail server, two processes of the
// API, two completers, a worker and a reaper. Clients create orders and refunds,
// sometimes several with one key, and retry as the contract requires. A fifth of the
// customers must approve their payments; they do so soon, after the charge window or never.
// The example shop, whose customers use its pages, is one of the clients (shop.go).
// Some orders are cancelled. The provider refunds, disputes and fails refunds without a webhook, and
// the shop's endpoint receives the events of it all (changes.go).
// Processes are killed and paused, the database crashes, the provider fails, and events
// arrive late, twice and out of order. The database also fails over to a standby that lacks
// the rows of the last second, and an operator follows the runbook (lostrows.go).
//
// After all faults, each key is sent once more. check.go compares the responses with the
// provider's ledger, the receipts, the database and what the runbook's commands named. Package
// history checks that the key of each request is linearizable; -judge repeats this check.
//
// The seed determines the orders and the faults, but not their timing.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"example.com/orders-api/client"
	"example.com/orders-api/lab/soak/history"
)

type options struct {
	seed      uint64
	orders    int
	kills     int
	crashes   int
	failovers int
	duration  time.Duration
	program   string
	history   string
	judge     string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	executable, err := os.Executable()
	if err != nil {
		return o, err
	}
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.Uint64Var(&o.seed, "seed", rand.Uint64N(1_000_000_000), "seed of the orders and faults") //nolint:gosec // no secret
	flags.IntVar(&o.orders, "orders", 20_000, "number of orders")
	flags.IntVar(&o.kills, "kills", 300, "number of kills; a third as many processes are paused")
	flags.IntVar(&o.crashes, "crashes", 10, "number of crashes of the database")
	flags.IntVar(&o.failovers, "failovers", 2, "number of failovers of the database that lose the rows of a second")
	flags.DurationVar(&o.duration, "duration", 0, "duration of the orders and faults; 0: 36 ms for each order")
	flags.StringVar(&o.program, "program", filepath.Join(filepath.Dir(executable), "orders"), "path of the program")
	flags.StringVar(&o.history, "history", "", "file for the history of requests; otherwise it is among the logs, which remain if there are violations")
	flags.StringVar(&o.judge, "judge", "", "only judge this history")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.duration == 0 {
		o.duration = time.Duration(o.orders) * 36 * time.Millisecond
	}
	if flags.NArg() > 0 || o.orders < 1 || o.kills < 0 || o.crashes < 0 || o.failovers < 0 || o.duration < time.Second {
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
	if o.judge != "" {
		return judge(o.judge, out)
	}
	fmt.Fprintf(out, "seed %d: %d orders in %s, %d kills, %d database crashes, %d failovers\n",
		o.seed, o.orders, o.duration, o.kills, o.crashes, o.failovers)
	s, err := startSystem(ctx, o, out)
	if err != nil {
		return err
	}
	violations, err := soak(ctx, s, o, out)
	err = errors.Join(err, s.close())
	for _, v := range violations {
		fmt.Fprintf(out, "VIOLATION seed %d, %s\n", o.seed, v)
	}
	if len(violations) > 0 {
		err = errors.Join(err, fmt.Errorf("%d violations", len(violations)))
	}
	if err != nil {
		return errors.Join(err, fmt.Errorf("seed %d; the logs are in %s", o.seed, s.folder))
	}
	return os.RemoveAll(s.folder)
}

// patience bounds each step after the faults. A row that is unfinished then is a
// violation.
const patience = 3 * time.Minute

// maxClosed bounds the time for which a failover closes the shop.
const maxClosed = 2 * time.Minute

const notLinearizable = "its history is not linearizable"

func soak(ctx context.Context, s *system, o options, out io.Writer) ([]violation, error) {
	start := time.Now()
	purchases := make([]*purchase, o.orders)
	for i := range purchases {
		var err error
		if purchases[i], err = newPurchase(o.seed, i, accounts); err != nil {
			return nil, err
		}
	}
	c, err := newCustomers(s, o.seed)
	if err != nil {
		return nil, err
	}
	f, err := buyAll(ctx, s, c, purchases, o)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "%s: the faults are over\n", time.Since(start).Round(time.Second))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "seed\t%d\n", o.seed)
	c.report(w) // excludes the replays

	expireAll(ctx, s, c, purchases)
	ofShop, err := s.shop.purchases(ctx)
	if err != nil {
		return nil, err
	}
	observed, err := s.waitIdle(ctx)
	if err != nil {
		return nil, err
	}
	observed.shop = ofShop
	c.replayAll(ctx, purchases)
	// A replay of a lost key creates its order again, whose receipt and event are then sent.
	unfinished, err := s.settle(ctx, 0)
	if err != nil {
		return nil, err
	}
	observed.unfinished = append(observed.unfinished, unfinished...)
	observed.purchases, observed.losses = purchases, f.losses
	observed.charges, observed.refunds = s.provider.stripe.Charges(), s.provider.stripe.Refunds()
	observed.receipts, observed.events, observed.disputes = s.mail.accepted(), s.endpoint.events(), s.provider.stripe.Disputes()
	if observed.orders, err = s.recordedOrders(ctx); err != nil {
		return nil, err
	}
	violations := check(observed)
	recordExpiries(s.history, f.losses, purchases)
	verdict, err := s.history.Judge()
	if err != nil {
		return nil, err
	}
	for _, key := range verdict.Rejected {
		violations = append(violations, violation{key.Account, client.Key(key.Name), "", notLinearizable + key.Operations()})
	}

	shown := map[string]int{}
	for _, p := range ofShop {
		shown[p.State]++
	}
	fmt.Fprintf(w, "purchases of the example shop\t%d\tpaid: %d, stopped: %d, not paid: %d\n",
		len(ofShop), shown["paid"], shown["stopped"], shown["basket"])
	reaped := 0
	for _, p := range purchases {
		if p.expires {
			reaped++
		}
	}
	fmt.Fprintf(w, "reaped keys\t%d\n", reaped)
	observed.sums(w)
	fmt.Fprintf(w, "refunds\t%d\n", len(observed.refunds))
	f.report(w)
	fmt.Fprintf(w, "history\t%s\n", verdict)
	fmt.Fprintf(w, "duration\t%s\n", time.Since(start).Round(time.Second))
	fmt.Fprintf(w, "violations\t%d\n", len(violations))
	return violations, w.Flush()
}

// judge reports the keys of a stored history that are not linearizable, and those that are so
// only because of a failover.
func judge(path string, out io.Writer) error {
	verdict, err := history.Judge(path)
	if err != nil {
		return err
	}
	for _, key := range verdict.Lost {
		fmt.Fprintf(out, "lost by a failover: %s%s\n", key, key.Operations())
	}
	for _, key := range verdict.Rejected {
		fmt.Fprintf(out, "VIOLATION: %s%s\n", key, key.Operations())
	}
	fmt.Fprintln(out, verdict)
	if n := len(verdict.Rejected); n > 0 {
		return fmt.Errorf("%d violations", n)
	}
	return nil
}

// maxPurchases bounds the purchases in progress. Without it, those of an outage would pile up on a slow machine until
// the fake, which is in this process, has no time and no file descriptor left.
const maxPurchases = 500

// buyAll creates the orders at a constant rate, or a lower one if too many are in progress, and causes all faults.
func buyAll(ctx context.Context, s *system, c *customers, purchases []*purchase, o options) (*faults, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*o.duration+patience+time.Duration(o.failovers)*maxClosed)
	defer cancel()
	f := &faults{system: s, customers: c, cancel: cancel, kills: map[string]int{}}
	var all sync.WaitGroup
	all.Go(func() { f.run(ctx, o) })
	start, places := time.Now(), make(chan struct{}, maxPurchases)
	for i, p := range purchases {
		due := time.Duration(i) * o.duration / time.Duration(o.orders)
		if !pause(ctx, due-time.Since(start)) {
			break
		}
		waiting := time.Now()
		places <- struct{}{}
		f.closed.RLock()
		start = start.Add(time.Since(waiting))
		f.closed.RUnlock()
		all.Go(func() {
			defer func() { <-places }()
			c.buy(ctx, p)
			if p.expires {
				s.age(ctx, p)
			}
		})
		if i%20 == 0 {
			all.Go(func() { s.shop.buy(ctx, i, s.provider, random(o.seed, shopStream+uint64(i))) })
		}
	}
	all.Wait()
	c.transport.calm.Store(true)
	s.provider.recovered()
	return f, f.err
}

// expireAll retries the keys that should have been reaped, and expires those that a
// failover has restored.
func expireAll(ctx context.Context, s *system, c *customers, purchases []*purchase) {
	for _, p := range purchases {
		if p.expires {
			c.conclude(ctx, &p.exchanges, "/v1/orders", p.body)
			s.age(ctx, p)
		}
	}
}

// settle waits until no row is unfinished, and at least for a time. It returns the rows that remain.
func (s *system) settle(ctx context.Context, atLeast time.Duration) ([]string, error) {
	for start := time.Now(); ; {
		_, err := s.database.rows(ctx, endPauses)
		var unfinished []string
		if err == nil {
			unfinished, err = s.database.rows(ctx, unfinishedQuery)
		}
		if err != nil {
			unfinished = []string{err.Error()} // stale connections after a crash
		}
		waited := time.Since(start)
		if len(unfinished) == 0 && waited > atLeast || waited > patience {
			return unfinished, nil
		}
		if !pause(ctx, 200*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
}

// waitIdle waits until no row is unfinished and none is too recent for reconcile. It then
// runs orders reconcile, first with --fix.
func (s *system) waitIdle(ctx context.Context) (o observation, err error) {
	if o.unfinished, err = s.settle(ctx, completerGrace); err != nil {
		return o, err
	}
	if _, err := s.reconcile(ctx, "--fix", "--since", reconcileSince); err != nil {
		o.failed = append(o.failed, err.Error())
	}
	refunds, err := s.database.rows(ctx, refundsQuery)
	if err != nil {
		return o, err
	}
	o.unfinished = append(o.unfinished, refunds...)
	report, err := s.reconcile(ctx, "--since", reconcileSince)
	if err != nil {
		o.failed = append(o.failed, err.Error())
	}
	o.discrepancies = report.Discrepancies
	return o, nil
}

func list[K cmp.Ordered](counts map[K]int) string {
	var text []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		text = append(text, fmt.Sprintf("%v: %d", name, counts[name]))
	}
	return strings.Join(text, ", ")
}
