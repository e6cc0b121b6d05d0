package credits_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	ordersapi "example.com/orders-api"
	"example.com/orders-api/api"
	"example.com/orders-api/examples/credits"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/limiter"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dbtest.Main{M: m}) }

// fixture is the API with the operation, on a database of its own, with a fake wallet
// service and a fake Stripe.
type fixture struct {
	*testing.T
	pool    *pgxpool.Pool
	engine  *idempotency.Engine
	orders  *orders.Service
	router  http.Handler
	account uuid.UUID
	apiKey  string
	wallets *walletService
	client  *credits.Wallets
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t, wallets: &walletService{credits: map[string]string{}}}
	f.pool = newPool(t)
	wallets := httptest.NewServer(f.wallets)
	t.Cleanup(wallets.Close)
	provider := stripetest.New(stripetest.Options{})
	stripe := httptest.NewServer(provider)
	t.Cleanup(stripe.Close)
	t.Cleanup(provider.Close)

	logger := slog.New(slog.DiscardHandler)
	client, err := payments.New(payments.Config{SecretKey: "sk_test_credits", BaseURL: stripe.URL, Timeout: time.Minute, Logger: logger})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	f.engine, err = idempotency.New(f.pool, idempotency.Config{LockTimeout: 90 * time.Second, Clock: time.Now, Logger: logger})
	require.NoError(t, err)
	f.client = &credits.Wallets{URL: wallets.URL, Token: walletToken, HTTP: wallets.Client()}
	service := &credits.Service{Pool: f.pool, Wallets: f.client}
	f.orders, err = orders.New(orders.Config{
		Engine: f.engine, Pool: f.pool, Payments: client, StepTimeout: time.Minute, ChargeWindow: 24 * time.Hour, Logger: logger,
		Registrations: orders.Registrations{service.Registration()},
	})
	require.NoError(t, err)

	f.account, f.apiKey, err = accounts.Create(t.Context(), f.pool, "test")
	require.NoError(t, err)
	authenticator, err := accounts.NewAuthenticator(accounts.Config{Pool: f.pool, Clock: time.Now})
	require.NoError(t, err)
	admission, err := limiter.New(limiter.Config{Work: 100, Backlog: 100, Wait: time.Minute, InFlight: 100})
	require.NoError(t, err)
	background := api.NewBackground(1, logger)
	f.router = api.NewRouter(api.Config{
		Orders: f.orders, Authenticator: authenticator, Limiter: admission, Spec: ordersapi.Spec, Logger: logger,
		Ready: api.NewReadiness(f.pool.Ping), Background: background, Retention: time.Hour,
	})
	return f
}

// send sends a POST under a key, or a GET if the key is empty.
func (f *fixture) send(key, path, body string) *httptest.ResponseRecorder {
	method := http.MethodGet
	if key != "" {
		method = http.MethodPost
	}
	request := httptest.NewRequestWithContext(f.Context(), method, path, strings.NewReader(body))
	request.Header.Set("Authorization", "Bearer "+f.apiKey)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", key)
	response := httptest.NewRecorder()
	f.router.ServeHTTP(response, request)
	return response
}

const (
	key     = "8e03978e-40d5-43e8-bc93-6894a57f9324"
	request = `{ "wallet": "ann", "amount": 1200 }`
)

// grant sends the request for a credit.
func (f *fixture) grant() *httptest.ResponseRecorder { return f.send(key, "/v1/credits", request) }

// credit returns the credit of the key, as the API shows it.
func (f *fixture) credit() (credit credits.Credit) {
	f.Helper()
	id := idempotency.DeriveID("credit", f.account, key)
	got := f.send("", "/v1/credits/"+id.String(), "")
	require.Equal(f, http.StatusOK, got.Code, got.Body)
	require.NoError(f, json.Unmarshal(got.Body.Bytes(), &credit))
	return credit
}

// resolve ends the key as orders keys resolve does.
func (f *fixture) resolve(service *orders.Service) (idempotency.Result, error) {
	return service.Resolve(f.Context(), f.account, idempotency.KeyID(f.account, key), orders.OperatorAction{Actor: "ada", Reason: "test"})
}

func (f *fixture) auditRecords() (n int) {
	f.Helper()
	require.NoError(f, f.pool.QueryRow(f.Context(), "SELECT count(*) FROM audit_records WHERE action = 'key.resolve'").Scan(&n))
	return n
}

// requireProblem requires a problem document with this slug, and returns it.
func requireProblem(t *testing.T, slug string, got *httptest.ResponseRecorder) (document map[string]any) {
	t.Helper()
	require.Equal(t, "application/problem+json", got.Header().Get("Content-Type"))
	require.NoError(t, json.Unmarshal(got.Body.Bytes(), &document))
	require.Equal(t, "/problems/"+slug, document["type"], got.Body)
	return document
}

const walletToken = "a-token-of-this-test"

// walletService is a fake that stores a credit once per id, unless the id was cancelled
// first. It may lose responses.
type walletService struct {
	mu            sync.Mutex
	credits       map[string]string // by path; empty if cancelled
	calls         int
	lostResponses int  // so many responses will be lost
	down          bool // it grants nothing now
}

func (w *walletService) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	body, err := io.ReadAll(in.Body)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	status := http.StatusBadRequest
	if err == nil {
		status = w.handle(in, string(body))
	}
	if w.lostResponses > 0 && status < http.StatusInternalServerError {
		w.lostResponses--
		panic(http.ErrAbortHandler)
	}
	out.WriteHeader(status)
}

func (w *walletService) handle(in *http.Request, body string) (status int) {
	credit, known := w.credits[in.URL.Path]
	switch {
	case in.Header.Get("Authorization") != "Bearer "+walletToken:
		return http.StatusBadRequest
	case in.Method == http.MethodDelete && credit != "":
		return http.StatusConflict
	case in.Method == http.MethodDelete:
		w.credits[in.URL.Path] = ""
		return http.StatusNoContent
	case in.Method != http.MethodPut:
		return http.StatusBadRequest
	case w.down:
		return http.StatusInternalServerError
	case known && credit == "":
		return http.StatusGone
	case strings.Contains(body, "missing"):
		return http.StatusNotFound
	default:
		w.credits[in.URL.Path] = body
		return http.StatusCreated
	}
}

func (w *walletService) expectCredits(t *testing.T, n int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	granted := 0
	for _, credit := range w.credits {
		if credit != "" {
			granted++
		}
	}
	require.Equal(t, n, granted, "credits at the wallet service")
}
