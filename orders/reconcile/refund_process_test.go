package reconcile_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http/httptest"
	"net/rpc"
	"os"
	"os/exec"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations/dbtest"
	. "example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments"
)

// processVariable names what another process of the service shares with the test that has started it.
const processVariable = "TEST_PROCESS"

type processConfig struct {
	Database, Provider string
	Account            uuid.UUID
}

// Process is the service in a process of its own. Its exported methods are called by the test (net/rpc).
type Process struct{ shop *Shop }

// TestProcess is no test, but what startProcess starts. It ends with the test that has started it.
func TestProcess(t *testing.T) {
	value, isProcess := os.LookupEnv(processVariable)
	if !isProcess {
		return
	}
	var config processConfig
	require.NoError(t, json.Unmarshal([]byte(value), &config))
	database, err := pgxpool.ParseConfig(config.Database)
	require.NoError(t, err)
	postgres.Configure(database)
	database.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(t.Context(), database)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	shop := New(t, Options{
		Pool: pool, Account: config.Account, Payments: payments.Config{BaseURL: config.Provider},
	})
	shop.Orders.Events = true
	server := rpc.NewServer()
	require.NoError(t, server.Register(&Process{shop}))
	server.ServeConn(stream{os.Stdin, os.Stdout})
}

type stream struct {
	io.Reader
	io.WriteCloser
}

// startProcess starts the service of a fixture in another process.
func startProcess(t *testing.T, f *Fixture) *rpc.Client {
	t.Helper()
	provider := httptest.NewServer(f.Stripe)
	t.Cleanup(provider.Close)
	config, err := json.Marshal(processConfig{dbtest.URL(f.Pool), provider.URL, f.Account})
	require.NoError(t, err)
	program, err := os.Executable()
	require.NoError(t, err)
	process := exec.CommandContext(context.Background(), program, "-test.run=^TestProcess$") // #nosec G204 -- this test itself
	process.Env = append(os.Environ(), processVariable+"="+string(config))
	process.Stderr = os.Stderr
	in, err := process.StdinPipe()
	require.NoError(t, err)
	out, err := process.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, process.Start())
	service := rpc.NewClient(stream{out, in})
	t.Cleanup(func() {
		require.NoError(t, service.Close()) // ends its input
		require.NoError(t, process.Wait())
	})
	return service
}

// Refund executes POST /v1/orders/{id}/refunds.
func (p *Process) Refund(req idempotency.Request, _ *bool) error {
	_, err := p.shop.Refund(context.Background(), req)
	return err
}

type webhookArgs struct {
	Payload   []byte
	Signature string
}

// Webhook executes POST /v1/webhooks/stripe.
func (p *Process) Webhook(args webhookArgs, _ *bool) error {
	_, err := handleEvent(context.Background(), p.shop, args.Payload, args.Signature)
	return err
}

// ReadList reads the provider's list of events.
func (p *Process) ReadList(_ bool, _ *bool) error {
	return p.shop.Changes.ReadList(context.Background())
}

// Work works off the jobs of changes.
func (p *Process) Work(_ bool, _ *bool) error {
	_, err := p.shop.Changes.Worker().RunOnce(context.Background())
	return err
}

func readList(p *rpc.Client) error {
	return p.Call("Process.ReadList", true, new(bool))
}
