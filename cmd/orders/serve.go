package main

import (
	"context"
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
