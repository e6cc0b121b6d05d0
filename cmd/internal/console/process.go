package console

import (
	"context"
	"os"
	"time"

	"example.com/orders-api/client"
	"example.com/orders-api/cmd/internal/faultproxy"
	"example.com/orders-api/internal/subprocess"
)

// ready starts the API process unless it is running.
func (c *Console) ready(ctx context.Context) error {
	if c.proxy == nil {
		if err := c.prepare(ctx); err != nil {
			return err
		}
	}
	if !c.api.Exited() {
		return nil
	}
	return c.startAPI(ctx)
}

// startAPI starts the API and waits until it is ready.
func (c *Console) startAPI(ctx context.Context) error { return c.api.Serve(ctx, c.base+"/readyz") }

// timeout is the STRIPE_TIMEOUT of the API process, and lease its LOCK_TIMEOUT. They
// are short, so that the lease of a killed process expires soon.
func (c *Console) timeout() time.Duration {
	if c.StandIn == nil {
		return 10*time.Second + 2*c.ProviderLatency
	}
	return 2*time.Second + 2*c.ProviderLatency
}

func (c *Console) lease() time.Duration { return c.timeout() + 2*time.Second }

// chargeWindow is the CHARGE_WINDOW of the API process.
const chargeWindow = 24 * time.Hour

// prepare starts the proxy, and describes the API process and the completer.
func (c *Console) prepare(ctx context.Context) error {
	address, err := subprocess.FreeAddress(ctx)
	if err != nil {
		return err
	}
	base := "http://" + address
	apiClient, err := client.New(client.Config{
		BaseURL:   base,
		APIKey:    c.APIKey,
		Transport: c.transport,
		Observe:   c.observeExchange,
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.LogFile, nil, 0o600); err != nil { // removes the output of the last start
		return err
	}
	proxy, err := faultproxy.New(ctx, faultproxy.Options{Provider: c.ProviderURL, Latency: c.ProviderLatency, OnCall: c.onCall})
	if err != nil {
		return err
	}
	c.proxy, c.base, c.client = proxy, base, apiClient
	environ := append(c.Environ[:len(c.Environ):len(c.Environ)],
		"LISTEN_ADDR="+address,
		"ADMIN_ADDR=",
		"STRIPE_SECRET_KEY="+c.ProviderKey,
		"STRIPE_API_BASE="+proxy.URL(),
		"STRIPE_WEBHOOK_SECRET=",
		"STRIPE_TIMEOUT="+c.timeout().String(),
		"LOCK_TIMEOUT="+c.lease().String(),
		"COMPLETER_GRACE=5m",
		"CHARGE_WINDOW="+chargeWindow.String(),
		"KEY_RETENTION=72h",
	)
	c.api = c.command(environ, "serve", "--shutdown-delay", "0")
	c.completer = c.command(environ, "completer")
	return nil
}

// command returns a process of this program.
func (c *Console) command(environ []string, args ...string) *subprocess.Process {
	return &subprocess.Process{
		Name:       "orders " + args[0],
		Executable: c.Executable,
		Args:       args,
		Environ:    environ,
		Log:        c.LogFile,
	}
}

// observeExchange passes a response of the API to the latest play.
func (c *Console) observeExchange(e client.Attempt) {
	if p, _ := c.latest(); p != nil {
		p.noteAnswer(e)
	}
}

// onCall passes a call of the API to the provider to the latest play.
func (c *Console) onCall(call faultproxy.Call) {
	if p, _ := c.latest(); p != nil {
		p.noteCall(call)
	}
}
