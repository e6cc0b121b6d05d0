package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"example.com/orders-api/cmd/internal/app"
)

type serve struct {
	ShutdownDelay time.Duration `default:"2s" zero:"" help:"How long a stopping server still accepts requests while /readyz returns 503, so that load balancers send new requests elsewhere."`
}

func (c *serve) Run(ctx context.Context, a *app.App) error {
	tuneGC()
	app.WarnOfSettings(ctx, a.Pool, a.Logger)
	s, err := a.Listen(ctx)
	if err != nil {
		return err
	}
	return s.Run(ctx, c.ShutdownDelay)
}

// tuneGC saves CPU time: with 400, an order takes 2 to 5 % less than with 200, which takes 5 % less
// than the default. The limit keeps the process below 128 MiB with the connections that it accepts at
// most. GOGC and GOMEMLIMIT override this.
func tuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(100 << 20)
	}
}

// healthcheck is for containers, because the image has no shell. It uses no proxy and follows
// no redirects, so that no other server responds.
type healthcheck struct{}

func (healthcheck) Run(ctx context.Context) error {
	config, err := app.Load()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	target := app.BaseURL(config.ListenAddr, "127.0.0.1") + "/readyz" // an empty image does not resolve localhost
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return err
	}
	response, err := new(http.Transport).RoundTrip(request)
	if err != nil {
		return fmt.Errorf("not healthy: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("not healthy: %s returned %s", target, response.Status)
	}
	return nil
}
