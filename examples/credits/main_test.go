package credits_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/examples/credits"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/migrations/dbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dbtest.Main{M: m}) }

const (
	key     idempotency.Key = "8e03978e-40d5-43e8-bc93-6894a57f9324"
	request string          = `{ "wallet": "ann", "amount": 1200 }`
)

// fixture is the service on a database of its own, and a fake wallet service.
type fixture struct {
	*testing.T
	*credits.Service
	pool    *pgxpool.Pool
	account uuid.UUID
	wallets *walletService
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	pool := idempotencytest.NewPool(t)
	schema, err := os.ReadFile("schema.sql")
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), string(schema))
	require.NoError(t, err)

	engine, err := idempotency.New(pool, idempotency.Config{
		LockTimeout: 90 * time.Second,
		Clock:       time.Now,
		Waiters:     100,
		Logger:      slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	wallets := &walletService{credits: map[string]string{}}
	server := httptest.NewServer(wallets)
	t.Cleanup(server.Close)
	return &fixture{
		T:       t,
		Service: &credits.Service{Engine: engine, Wallets: &credits.Wallets{URL: server.URL, HTTP: server.Client()}},
		pool:    pool,
		account: idempotencytest.Account(t, pool),
		wallets: wallets,
	}
}

// grant sends the request once.
func (f *fixture) grant() (idempotency.Result, error) {
	return f.send(key, request)
}

// send does what an HTTP handler does with a body.
func (f *fixture) send(key idempotency.Key, body string) (idempotency.Result, error) {
	params, err := idempotency.Canonicalize([]byte(body))
	if err != nil {
		return idempotency.Result{}, err
	}
	return f.Grant(context.WithoutCancel(f.Context()), idempotency.Request{
		AccountID: f.account,
		Key:       key,
		Method:    http.MethodPost,
		Path:      "/v1/credits",
		Params:    params,
	})
}

// status returns the recorded status of the credit.
func (f *fixture) status() string {
	f.Helper()
	var status string
	require.NoError(f, f.pool.QueryRow(f.Context(), "SELECT status FROM credits WHERE account_id = $1", f.account).Scan(&status))
	return status
}

// walletService is a fake that stores a credit once per id, and may lose responses.
type walletService struct {
	mu            sync.Mutex
	credits       map[string]string // by path
	calls         int
	lostResponses int // so many responses will be lost
}

func (w *walletService) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	body, err := io.ReadAll(in.Body)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	switch {
	case err != nil || in.Method != http.MethodPut:
		out.WriteHeader(http.StatusBadRequest)
	case strings.Contains(string(body), "nobody"):
		out.WriteHeader(http.StatusNotFound)
	default:
		w.credits[in.URL.Path] = string(body)
		if w.lostResponses > 0 {
			w.lostResponses--
			panic(http.ErrAbortHandler)
		}
		out.WriteHeader(http.StatusCreated)
	}
}

func (w *walletService) requireOne(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Len(t, w.credits, 1, "credits at the wallet service")
	for path, credit := range w.credits {
		require.JSONEq(t, request, credit)
		id, err := uuid.Parse(strings.TrimPrefix(path, "/credits/"))
		require.NoError(t, err)
		require.EqualValues(t, 8, id.Version(), "it is derived (R5)")
	}
}

func requireGranted(t *testing.T, result idempotency.Result, err error) {
	t.Helper()
	require.NoError(t, err)
	require.Equal(t, 201, result.Response.Status)
	require.Contains(t, string(result.Response.Body), `"status":"granted"`)
}
