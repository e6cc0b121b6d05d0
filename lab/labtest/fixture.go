package labtest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/payments/stripetest"
)

// Fixture is a database with one account, a fake Stripe, and the environment for
// both.
type Fixture struct {
	T       *testing.T
	Pool    *pgxpool.Pool
	Stripe  *stripetest.Server
	Environ []string
	APIKey  string
}

// NewFixture returns a fixture with a database of its own.
func NewFixture(t *testing.T) *Fixture {
	t.Helper()
	pool := dbtest.New(t)
	f := NewFixtureOn(t, pool, dbtest.URL(pool))
	f.CreateAccount()
	return f
}

// NewFixtureOn returns a fixture without an account on this database.
func NewFixtureOn(t *testing.T, pool *pgxpool.Pool, url string, settings ...string) *Fixture {
	t.Helper()
	stripe, provider := programtest.FakeStripe(t)
	environ := programtest.Environ(t, append([]string{
		"DATABASE_URL=" + url, "STRIPE_SECRET_KEY=sk_test_fixture", "STRIPE_API_BASE=" + provider, "LISTEN_ADDR=127.0.0.1:0",
	}, settings...)...)
	return &Fixture{T: t, Pool: pool, Stripe: stripe, Environ: environ}
}

// CreateAccount creates the account and its API key.
func (f *Fixture) CreateAccount() {
	f.T.Helper()
	words := strings.Fields(Run(f.T, f.Environ, "accounts", "create", "--name", "Fixture"))
	f.APIKey = words[len(words)-1]
}

// With returns the environment with additional settings.
func (f *Fixture) With(settings ...string) []string {
	return append(f.Environ[:len(f.Environ):len(f.Environ)], settings...)
}

// Serve starts the API and waits until it listens.
func (f *Fixture) Serve(environ []string, args ...string) *programtest.API {
	f.T.Helper()
	return f.Listening(Start(f.T, environ, append([]string{"serve"}, args...)...))
}

// Listening waits until a started API listens.
func (f *Fixture) Listening(p *programtest.Process) *programtest.API {
	f.T.Helper()
	address := p.WaitFor(&p.Stderr, `listening.*address"?[=:]"?([0-9.]+:[0-9]+)`)[1]
	return &programtest.API{Process: p, Base: "http://" + address, Key: f.APIKey}
}

// Exec executes a statement.
func (f *Fixture) Exec(statement string, arguments ...any) {
	f.T.Helper()
	_, err := f.Pool.Exec(f.T.Context(), statement, arguments...)
	require.NoError(f.T, err)
}

// Count returns the number that a query selects.
func (f *Fixture) Count(query string, arguments ...any) int {
	f.T.Helper()
	var n int
	require.NoError(f.T, f.Pool.QueryRow(f.T.Context(), query, arguments...).Scan(&n))
	return n
}

// StartDev starts playground run and waits until it is ready.
func StartDev(t *testing.T, environ []string) *programtest.API {
	t.Helper()
	p := programtest.StartProgram(t, Playground(), append(environ[:len(environ):len(environ)], "LISTEN_ADDR=127.0.0.1:0"), "run")
	p.WaitFor(&p.Stdout, "Send the same line again")
	p.WaitFor(&p.Stderr, "listening")
	return &programtest.API{
		Process: p,
		Base:    p.WaitFor(&p.Stdout, `Orders API +(http://\S+)`)[1],
		Key:     p.WaitFor(&p.Stdout, `API key +(ok_\S+)`)[1],
	}
}

// UntilPaid retries until the response is final, which must be 201. It returns an error, so
// that any goroutine may call it.
func UntilPaid(ctx context.Context, a *programtest.API, idempotencyKey string) (programtest.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, programtest.WaitTimeout)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		got, err := a.Order(ctx, idempotencyKey)
		switch {
		case err != nil:
			return programtest.Response{}, err
		case got.Status == http.StatusCreated && strings.Contains(got.Body, `"amount":2500`):
			return got, nil
		case got.Status != http.StatusConflict && got.Status != http.StatusServiceUnavailable,
			got.Header.Get("Retry-After") == "":
			return programtest.Response{}, fmt.Errorf("%s: %d %s", idempotencyKey, got.Status, got.Body)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return programtest.Response{}, fmt.Errorf("%s: still %d %s", idempotencyKey, got.Status, got.Body)
		}
	}
}

// Plan is a statement that a connection has prepared, and its generic plan.
type Plan struct {
	Name, Statement string
	Parameters      int
	Custom, Generic int    // executions with a plan for their arguments, and with the generic one
	Text            string `db:"-"`
}

// Plans returns the plans of all statements that the pool's only connection has
// prepared.
func Plans(t testing.TB, pool *pgxpool.Pool) []Plan {
	t.Helper()
	require.EqualValues(t, 1, pool.Config().MaxConns)
	rows, err := pool.Query(t.Context(), `
SELECT name,
       statement,
       cardinality(parameter_types),
       custom_plans,
       generic_plans
  FROM pg_prepared_statements`)
	require.NoError(t, err)
	plans, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Plan])
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "SET plan_cache_mode = force_generic_plan")
	require.NoError(t, err)
	for i, p := range plans {
		nulls := strings.TrimSuffix(strings.Repeat("NULL, ", p.Parameters), ", ")
		rows, err := pool.Query(t.Context(), "EXPLAIN EXECUTE "+p.Name+strings.Replace("("+nulls+")", "()", "", 1), pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err, p.Statement)
		plans[i].Text = strings.Join(lines, "\n")
	}
	return plans
}
