package main_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	orders "example.com/orders-api/cmd/orders"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/payments/stripetest"
)

const confirmEndpoint = "POST /v1/payment_intents/{id}/confirm"

type fixture struct {
	t       *testing.T
	pool    *pgxpool.Pool
	stripe  *stripetest.Server
	environ []string
	apiKey  string
	opened  *programtest.API
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	pool := dbtest.New(t)
	f := &fixture{t: t, pool: pool}
	var provider string
	f.stripe, provider = programtest.FakeStripe(t)
	f.environ = programtest.Environ(t,
		"DATABASE_URL="+dbtest.URL(pool), "STRIPE_SECRET_KEY=sk_test_fixture", "STRIPE_API_BASE="+provider, "LISTEN_ADDR=127.0.0.1:0",
		"RECEIPTS_FROM=Orders <receipts@example.com>")
	var err error
	_, f.apiKey, err = accounts.Create(t.Context(), pool, "Fixture")
	require.NoError(t, err)
	return f
}

func createAccount(t *testing.T, environ []string) string {
	t.Helper()
	stdout, _ := programtest.Succeed(t, environ, "accounts", "create", "--name", "Fixture")
	lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	return lines[len(lines)-1]
}

func (f *fixture) serve(environ []string, args ...string) *programtest.API {
	f.t.Helper()
	p := programtest.Start(f.t, environ, append([]string{"serve"}, args...)...)
	address := p.WaitFor(&p.Stderr, `listening.*address"?[=:]"?([0-9.]+:[0-9]+)`)[1]
	return &programtest.API{Process: p, Base: "http://" + address, Key: f.apiKey}
}

// shared returns an API for requests of this test that need no API of their own.
func (f *fixture) shared() *programtest.API {
	f.t.Helper()
	if f.opened == nil {
		f.opened = f.serve(f.environ)
	}
	return f.opened
}

func (f *fixture) with(settings ...string) []string {
	return append(f.environ[:len(f.environ):len(f.environ)], settings...)
}

func TestMain(m *testing.M) {
	// The tests mostly wait for processes. The flag -parallel overrides this.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	programtest.Main(m, orders.Main)
}
