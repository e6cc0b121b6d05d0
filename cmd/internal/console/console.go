package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/client"
	"example.com/orders-api/cmd/internal/faultproxy"
	"example.com/orders-api/internal/subprocess"
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

// Options configure a [Console]. All are required except ProviderURL and StandIn.
type Options struct {
	Executable  string   // this program
	Environ     []string // of the API process; has DATABASE_URL
	LogFile     string   // the API process appends its output
	APIKey      string   // of the account that orders
	Pool        *pgxpool.Pool
	Payments    *payments.Client   // reaches the provider directly, without the proxy
	ProviderKey string             // for the API process
	ProviderURL string             // "" is Stripe's own
	StandIn     *stripetest.Server // nil when the provider is Stripe itself
	Mailbox     *Mailbox
	Logger      *slog.Logger

	// ProviderLatency is added to each call to the provider, so that people can
	// follow an order from one recovery point to the next.
	ProviderLatency time.Duration
}

func (o Options) validate() error {
	if o.Executable == "" || o.LogFile == "" || o.APIKey == "" || o.Pool == nil || o.Payments == nil ||
		o.ProviderKey == "" || o.Mailbox == nil || o.Logger == nil {
		return errors.New("console: an option is missing")
	}
	return nil
}

// Console is the page and its API process.
type Console struct {
	Options
	account uuid.UUID
	done    chan struct{} // closed when Run ends: streams end with it
	starts  chan choice   // from the page to Run, which runs one at a time

	// Used by Run only, and set by the first play.
	proxy     *faultproxy.Proxy
	api       *subprocess.Process
	completer *subprocess.Process
	base      string // URL of that API
	client    *client.Client
	transport *http.Transport

	mu      sync.Mutex
	busy    bool
	play    *play         // the latest; nil before the first
	changed chan struct{} // closed when the view has changed
}

// New returns a console. Run starts it.
func New(ctx context.Context, options Options) (*Console, error) {
	if err := options.validate(); err != nil {
		return nil, err
	}
	account, err := accountOf(ctx, options.Pool, options.APIKey)
	if err != nil {
		return nil, err
	}
	return &Console{
		Options:   options,
		account:   account,
		done:      make(chan struct{}),
		starts:    make(chan choice),
		transport: &http.Transport{MaxIdleConnsPerHost: twins},
		changed:   make(chan struct{}),
	}, nil
}

// Run runs the plays that the page starts until ctx ends, and then stops the API
// process.
func (c *Console) Run(ctx context.Context) error {
	for {
		select {
		case choice := <-c.starts:
			c.perform(ctx, choice)
		case <-ctx.Done():
			close(c.done)
			return c.close()
		}
	}
}

// errBusy means that a play is in progress.
var errBusy = errors.New("another order is still on its way: one at a time, so that its failure strikes no other")

// start starts a play, unless one is in progress.
func (c *Console) start(ctx context.Context, chosen choice) error {
	c.mu.Lock()
	busy := c.busy
	c.busy = true
	c.mu.Unlock()
	if busy {
		return errBusy
	}
	select {
	case c.starts <- chosen:
		return nil
	case <-c.done:
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = false
	return errors.New("the console is shutting down")
}

// playTimeout bounds a play. The longest waits for a lease to expire, which is as
// long as Stripe may take.
const playTimeout = 2 * time.Minute

// perform runs a play. The page shows its error.
func (c *Console) perform(ctx context.Context, chosen choice) {
	ctx, cancel := context.WithTimeoutCause(ctx, playTimeout, fmt.Errorf("took longer than %s", playTimeout))
	defer cancel()
	p := newPlay(c, chosen)
	c.mu.Lock()
	c.play = p
	c.mu.Unlock()
	c.changedNow()
	err := p.run(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.Logger.WarnContext(ctx, "console: play failed", "failure", chosen.failure.ID, "error", err)
	}
	p.end(err)
	c.mu.Lock()
	c.busy = false
	c.mu.Unlock()
	c.changedNow()
}

// changedNow wakes the streams.
func (c *Console) changedNow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
}

// latest returns the latest play and a channel that is closed at the next change.
func (c *Console) latest() (*play, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.play, c.changed
}

// close stops what the plays started.
func (c *Console) close() error {
	var err error
	if c.api != nil {
		err = c.api.Stop()
	}
	c.transport.CloseIdleConnections()
	if c.proxy != nil {
		err = errors.Join(err, c.proxy.Close())
	}
	return err
}
