package console

import (
	"context"
	"os"
	"time"

	"example.com/orders-api/client"
	"example.com/orders-api/cmd/internal/child"
	"example.com/orders-api/cmd/internal/wire"
)

// ready makes sure that there is an API to order from: the first play starts it,
// and one that finds it dead starts it again.
func (c *Console) ready(ctx context.Context) error {
	if c.wire == nil {
		if err := c.prepare(ctx); err != nil {
			return err
		}
	}
	if !c.api.Ended() {
		return nil
	}
	return c.startAPI(ctx)
}

// startAPI starts the API and waits until it is ready.
func (c *Console) startAPI(ctx context.Context) error { return c.api.Serve(ctx, c.base+"/readyz") }

// timeout is how long that API waits for the provider in a step, and lease how long
// a run of it may hold a key: short, so that nobody waits long for what a killed
// process held.
func (c *Console) timeout() time.Duration {
	if c.StandIn == nil {
		return 10*time.Second + 2*c.Pace
	}
	return 2*time.Second + 2*c.Pace
}

func (c *Console) lease() time.Duration { return c.timeout() + 2*time.Second }

// prepare lays the wire and describes the API's process.
func (c *Console) prepare(ctx context.Context) error {
	address, err := child.FreeAddress(ctx)
	if err != nil {
		return err
	}
	base := "http://" + address
	shop, err := client.New(client.Config{
		BaseURL:   base,
		APIKey:    c.APIKey,
		Transport: c.transport,
		// The API names its waits, and nobody else is waiting.
		Backoff:    time.Millisecond,
		MaxBackoff: 100 * time.Millisecond,
		Observe:    c.observeExchange,
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.LogFile, nil, 0o600); err != nil { // that of the last start is old news
		return err
	}
	line, err := wire.New(ctx, wire.Options{Provider: c.ProviderURL, Delay: c.Pace, Observe: c.observeCall})
	if err != nil {
		return err
	}
	c.wire, c.base, c.shop = line, base, shop
	c.api = &child.Process{
		Name:       "orders serve",
		Executable: c.Executable,
		Args:       []string{"serve", "--shutdown-delay", "0"},
		Environ: append(c.Environ[:len(c.Environ):len(c.Environ)],
			"LISTEN_ADDR="+address,
			"ADMIN_ADDR=",
			"STRIPE_SECRET_KEY="+c.ProviderKey,
			"STRIPE_API_BASE="+line.URL(),
			"STRIPE_WEBHOOK_SECRET=",
			"STRIPE_TIMEOUT="+c.timeout().String(),
			"LOCK_TIMEOUT="+c.lease().String(),
			"COMPLETER_GRACE=5m",
			"KEY_RETENTION=72h",
		),
		Log: c.LogFile,
	}
	return nil
}

// observeExchange hands an answer of the API's to the play that asked.
func (c *Console) observeExchange(e client.Attempt) {
	if p, _ := c.latest(); p != nil {
		p.noteAnswer(e)
	}
}

// observeCall hands a call of the API's to the provider to the play that is on.
func (c *Console) observeCall(call wire.Call) {
	if p, _ := c.latest(); p != nil {
		p.noteCall(call)
	}
}
