package main_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/orders/orderstest"
)

const (
	createEndpoint  = "POST /v1/payment_intents"
	confirmEndpoint = "POST /v1/payment_intents/{id}/confirm"

	leaseDuration = time.Minute
	grace         = 5 * time.Minute
	retention     = 72 * time.Hour
)

// fixture is the service without HTTP, on an instrumented pool: what an order costs the
// database, and make -C lab bench-reaper and bench-waiters.
type fixture struct {
	*orderstest.Shop

	tb   testing.TB
	wire *idempotencytest.Wire
}

func newFixture(tb testing.TB, conns int32) *fixture {
	tb.Helper()
	wire := &idempotencytest.Wire{}
	return newFixtureOn(tb, wire, idempotencytest.NewPool(tb, wire.Configure, func(c *pgxpool.Config) { c.MaxConns = conns }))
}

func newFixtureOn(tb testing.TB, wire *idempotencytest.Wire, pool *pgxpool.Pool) *fixture {
	tb.Helper()
	shop := orderstest.New(tb, orderstest.Options{
		Pool:        pool,
		StepTimeout: 50 * time.Second, // less than a lease, and more than a step of BenchmarkWaiters
		Engine:      idempotency.Config{LeaseDuration: leaseDuration, Waiters: waiters},
	})
	return &fixture{shop, tb, wire}
}

const itemsJSON = `[
	{"sku":"TEA-ASSAM-250","description":"Assam tea, 250 g","quantity":2,"unit_amount":1250},
	{"sku":"MUG-BLUE","quantity":1,"unit_amount":1800}
]`

func (f *fixture) request(key string) idempotency.Request {
	f.tb.Helper()
	params, err := idempotency.Canonicalize(fmt.Appendf(nil,
		`{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa","items":%s,"metadata":{"basket":"b-77"}}`, itemsJSON))
	require.NoError(f.tb, err)
	return idempotency.Request{
		AccountID: f.Account, Key: idempotency.Key(key), Method: http.MethodPost, Path: "/v1/orders", Params: params,
	}
}

func (f *fixture) create(key string) (idempotency.Result, error) {
	return f.Create(f.tb.Context(), f.request(key))
}
