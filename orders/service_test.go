package orders_test

import (
	"log/slog"
	"reflect"
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

	for i := range reflect.TypeFor[orders.Config]().NumField() {
		name := reflect.TypeFor[orders.Config]().Field(i).Name
		config := whole
		reflect.ValueOf(&config).Elem().Field(i).SetZero()
		_, err := orders.New(config)
		require.Equal(t, name == "Registrations", err == nil, name) // the only one that may be missing
	}
}
