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
	"example.com/orders-api/cmd/internal/child"
	"example.com/orders-api/cmd/internal/wire"
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

// Options is what a console works with. All of it is needed, ProviderURL and
// StandIn aside.
type Options struct {
	Executable  string   // this program
	Environ     []string // of the API processes it starts; has DATABASE_URL
	LogFile     string   // gets what those print
	APIKey      string   // of the account that orders
	Pool        *pgxpool.Pool
	Payments    *payments.Client   // asks the provider directly, past the wire
	ProviderKey string             // for the API processes
	ProviderURL string             // "" is Stripe's own
	StandIn     *stripetest.Server // nil when the provider is Stripe itself
	Mailbox     *Mailbox
	Pace        time.Duration // by which each call to the provider is held up
	Logger      *slog.Logger
}

func (o Options) validate() error {
	if o.Executable == "" || o.LogFile == "" || o.APIKey == "" || o.Pool == nil || o.Payments == nil ||
		o.ProviderKey == "" || o.Mailbox == nil || o.Logger == nil {
		return errors.New("console: an option is missing")
	}
	return nil
}

// Console is the page and what is behind it.
type Console struct {
	Options
	account uuid.UUID
	done    chan struct{} // closed when Run ends: streams end with it
	starts  chan choice   // from the page to Run, which plays one at a time

	// What Run alone uses. The first play makes them.
	wire      *wire.Wire
	api       *child.Process
	base      string // URL of that API
	shop      *client.Client
	transport *http.Transport

	mu      sync.Mutex
	busy    bool
	play    *play         // the latest; nil before the first
	changed chan struct{} // closed when there is something new to show
}

// New returns a console that does nothing before Run.
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

// Run plays what the page asks for until ctx ends, and ends the processes that it
// started.
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

// errBusy says that a play is on.
var errBusy = errors.New("another order is still on its way: one at a time, so that its failure strikes no other")

// start begins a play, unless one is on.
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

// patience bounds a play. The longest waits out a lease at Stripe's speed.
const patience = 2 * time.Minute

// perform plays what was chosen. What went wrong is for the page to show.
func (c *Console) perform(ctx context.Context, chosen choice) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("took longer than %s", patience))
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
		c.Logger.WarnContext(ctx, "console: a play failed", "failure", chosen.failure.ID, "error", err)
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

// latest returns the latest play and a channel that is closed when there is more.
func (c *Console) latest() (*play, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.play, c.changed
}

// close ends what the plays left running.
func (c *Console) close() error {
	var err error
	if c.api != nil {
		err = c.api.Stop()
	}
	c.transport.CloseIdleConnections()
	if c.wire != nil {
		err = errors.Join(err, c.wire.Close())
	}
	return err
}
