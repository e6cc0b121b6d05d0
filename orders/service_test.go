package orders_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
)

func TestNew_missingDependency(t *testing.T) {
	t.Parallel()
	logger := slog.New(slog.DiscardHandler)
	pool := idempotencytest.NewPool(t)
	engine, err := idempotency.New(pool, idempotency.Config{LockTimeout: time.Minute, Clock: time.Now, Logger: logger})
	require.NoError(t, err)
	client, err := payments.New(payments.Config{SecretKey: "sk_test_1", Timeout: time.Second, Logger: logger})
	require.NoError(t, err)
	whole := orders.Config{Engine: engine, Pool: pool, Payments: client, StepTimeout: time.Second, ChargeWindow: 24 * time.Hour, Logger: logger}
	_, err = orders.New(whole)
	require.NoError(t, err)

	for want, remove := range map[string]func(*orders.Config){
		"orders: no engine":                     func(c *orders.Config) { c.Engine = nil },
		"orders: no pool":                       func(c *orders.Config) { c.Pool = nil },
		"orders: no payments client":            func(c *orders.Config) { c.Payments = nil },
		"orders: StepTimeout must be positive":  func(c *orders.Config) { c.StepTimeout = 0 },
		"orders: ChargeWindow must be positive": func(c *orders.Config) { c.ChargeWindow = 0 },
		"orders: no logger":                     func(c *orders.Config) { c.Logger = nil },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			config := whole
			remove(&config)
			_, err := orders.New(config)
			require.EqualError(t, err, want)
		})
	}
}
