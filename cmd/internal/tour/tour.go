package tour

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"example.com/orders-api/client"
	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/cmd/internal/faultproxy"
	"example.com/orders-api/internal/subprocess"
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

// Options configure a tour. All are required except StandIn and ProviderURL.
type Options struct {
	Executable  string   // this program
	Environ     []string // of its subprocesses; has DATABASE_URL
	APIKey      string   // of an account created for the tour
	ProviderKey string
	ProviderURL string             // "" is Stripe's own
	StandIn     *stripetest.Server // nil when the provider is Stripe itself
	Out         io.Writer
}

// tour is one run.
type tour struct {
	Options
	started  time.Time
	provider *payments.Client // reaches the provider directly, without the proxy
	proxy    *faultproxy.Proxy
	mail     *mailbox
	api      *subprocess.Process
	worker   *subprocess.Process
	folder   string // of the logs
	base     string // URL of the API
	client   *client.Client
	requests atomic.Int64    // POST requests sent by client
	orders   map[string]sale // every order created so far, by id
	first    sent            // request and response of the first claim
	rows     []row

	transport *http.Transport // to the API
}

// sale is an order of the tour and the charge that it must have.
type sale struct {
	amount int64 // 0: must not be charged
	claim  int   // index of the row it belongs to
}

// row is one line of the closing table.
type row struct {
	name                                string
	requests, orders, charges, receipts int
}

// Run runs the tour. It stops at the first claim that does not hold, with an error
// that names the folder of the logs.
func Run(ctx context.Context, options Options) error {
	folder, err := os.MkdirTemp("", "orders-demo-")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	t := &tour{
		Options:   options,
		started:   time.Now(),
		folder:    folder,
		orders:    map[string]sale{},
		transport: &http.Transport{MaxIdleConnsPerHost: 32},
	}
	err = t.run(ctx)
	// After a failed claim, errors of the subprocesses add nothing.
	if closeErr := t.close(ctx); err == nil {
		err = closeErr
	}
	switch {
	case ctx.Err() != nil:
		return errors.Join(fmt.Errorf("demo: %w", ctx.Err()), os.RemoveAll(folder))
	case err != nil:
		return fmt.Errorf("%w\nthe logs of API and worker are in %s", err, folder)
	default:
		return os.RemoveAll(folder)
	}
}

func (t *tour) run(ctx context.Context) error {
	if err := t.start(ctx); err != nil {
		return err
	}
	for _, claim := range t.claims() {
		t.rows = append(t.rows, row{name: claim.name})
		before := t.requests.Load()
		outcome, err := claim.check(ctx)
		if errors.Is(err, errSkipped) {
			fmt.Fprintf(t.Out, " – %-42s %s\n", claim.name, outcome)
			continue
		}
		if err == nil {
			err = t.audit(ctx)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			fmt.Fprintf(t.Out, " ✗ %s\n", claim.name)
			return fmt.Errorf("%s: %w", claim.name, err)
		}
		t.rows[len(t.rows)-1].requests = int(t.requests.Load() - before)
		fmt.Fprintf(t.Out, " ✓ %-42s %s\n", claim.name, outcome)
	}
	t.printTable()
	return nil
}

// audit compares the provider's payments and the orders that the API lists with the
// responses: each order must be charged exactly once and for its amount, or not at
// all.
func (t *tour) audit(ctx context.Context) error {
	listed, err := t.client.ListOrders(ctx, 100, "") // a tour creates less than a page
	if err != nil {
		return err
	}
	if len(listed.Data) != len(t.orders) {
		return fmt.Errorf("the API lists %d orders, expected %d", len(listed.Data), len(t.orders))
	}
	charges := map[string]int{}
	var wrongAmount error
	// The provider's clock may be behind ours.
	err = t.provider.List(ctx, t.started.Add(-10*time.Minute), time.Time{}, func(intent payments.Intent) bool {
		id := intent.Metadata["order_id"]
		sale, ours := t.orders[id]
		if !ours || intent.Status != payments.StatusSucceeded {
			return true
		}
		if intent.AmountReceived != sale.amount {
			wrongAmount = fmt.Errorf("order %s: charged %d instead of %d", id, intent.AmountReceived, sale.amount)
		}
		charges[id]++
		return true
	})
	if err := errors.Join(err, wrongAmount); err != nil {
		return err
	}
	for i := range t.rows {
		t.rows[i].orders, t.rows[i].charges = 0, 0
	}
	for id, sale := range t.orders {
		expected := 1
		if sale.amount == 0 {
			expected = 0
		}
		if charges[id] != expected {
			return fmt.Errorf("order %s: the provider has %d charges, expected %d", id, charges[id], expected)
		}
		t.rows[sale.claim].orders++
		t.rows[sale.claim].charges += charges[id]
	}
	return nil
}

// printTable prints a summary of the claims that sent requests.
func (t *tour) printTable() {
	const line = "   %-42s %8d  %6d  %7d  %8d\n"
	fmt.Fprintf(t.Out, "\n   %-42s %8s  %6s  %7s  %8s\n", "", "requests", "orders", "charges", "receipts")
	total := row{name: "together"}
	for _, r := range t.rows {
		if r.requests == 0 {
			continue
		}
		fmt.Fprintf(t.Out, line, r.name, r.requests, r.orders, r.charges, r.receipts)
		total.requests += r.requests
		total.orders += r.orders
		total.charges += r.charges
		total.receipts += r.receipts
	}
	fmt.Fprintf(t.Out, line, total.name, total.requests, total.orders, total.charges, total.receipts)
}

// start starts the proxy, the mailbox, the API and the worker.
func (t *tour) start(ctx context.Context) error {
	var err error
	if t.provider, err = payments.New(payments.Config{
		SecretKey: t.ProviderKey,
		BaseURL:   t.ProviderURL,
		Timeout:   30 * time.Second,
		Transport: boot.ProviderTransport(),
		Logger:    slog.New(slog.DiscardHandler),
	}); err != nil {
		return err
	}
	if t.proxy, err = faultproxy.New(ctx, faultproxy.Options{Provider: t.ProviderURL}); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if t.mail, err = newMailbox(ctx); err != nil {
		return err
	}
	address, err := subprocess.FreeAddress(ctx)
	if err != nil {
		return err
	}
	t.base = "http://" + address
	if t.client, err = t.newClient(); err != nil {
		return err
	}

	// Short timeouts, so that the lease of a killed process expires soon. A confirm at
	// Stripe itself takes seconds over a slow link, and an attempt has a part of the
	// timeout.
	timeout, lease := "2s", "4s"
	if t.StandIn == nil {
		timeout, lease = "20s", "25s"
	}
	environ := append(t.Environ,
		"LISTEN_ADDR="+address,
		"ADMIN_ADDR=", // others may have theirs at the default
		"STRIPE_SECRET_KEY="+t.ProviderKey,
		"STRIPE_API_BASE="+t.proxy.URL(),
		"STRIPE_TIMEOUT="+timeout,
		"LOCK_TIMEOUT="+lease,
		"COMPLETER_GRACE=5m",
		"CHARGE_WINDOW=24h",
		"KEY_RETENTION=72h",
		"SMTP_URL=smtp://"+t.mail.address,
		"RECEIPTS_FROM=Orders <receipts@example.com>",
		"LOG_LEVEL=info",
		"LOG_FORMAT=text",
	)
	t.api = t.command(environ, "serve", "--shutdown-delay", "0")
	t.worker = t.command(environ, "worker", "--every", "200ms")
	if err := t.startAPI(ctx); err != nil {
		return err
	}
	return t.worker.Start()
}

// command returns a subprocess of this program. Its log is named after the command.
func (t *tour) command(environ []string, args ...string) *subprocess.Process {
	return &subprocess.Process{
		Name:       "orders " + args[0],
		Executable: t.Executable,
		Args:       args,
		Environ:    environ,
		Log:        filepath.Join(t.folder, args[0]+".log"),
	}
}

// startAPI starts `orders serve` and waits until it is ready.
func (t *tour) startAPI(ctx context.Context) error { return t.api.Serve(ctx, t.base+"/readyz") }

// close stops everything that start started. After an interrupt it kills the
// subprocesses.
func (t *tour) close(ctx context.Context) error {
	var err error
	for _, p := range []*subprocess.Process{t.api, t.worker} {
		if ctx.Err() != nil {
			err = errors.Join(err, p.Kill())
		} else {
			err = errors.Join(err, p.Stop())
		}
	}
	t.transport.CloseIdleConnections()
	if t.proxy != nil {
		err = errors.Join(err, t.proxy.Close())
	}
	if t.mail != nil {
		err = errors.Join(err, t.mail.close())
	}
	if t.provider != nil {
		t.provider.Close()
	}
	return err
}

// poll calls done until it returns true or the timeout is over.
func poll(ctx context.Context, timeout time.Duration, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("waited for %s", timeout))
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
	}
}
