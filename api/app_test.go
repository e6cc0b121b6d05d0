package api_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	ordersapi "example.com/orders-api"
	"example.com/orders-api/api"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/limiter"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

// stepTimeout is long enough for a test to hold a call to the provider.
const stepTimeout = 20 * time.Second

// retention is how long the app says that keys are kept.
const retention = 72 * time.Hour

// app is the real thing on a database of its own, with the stand-in for Stripe
// behind it.
type app struct {
	pool    *pgxpool.Pool
	stripe  *stripetest.Server
	router  chi.Router
	server  *http.Server
	url     string
	client  *http.Client // checks everything against the contract
	account uuid.UUID
	apiKey  string
	webhook string // its secret
	log     *log
	secrets *secrets

	limiter *limiter.Limiter

	authClock atomic.Int64 // time of the Authenticator's clock, in nanoseconds

	engine     *idempotency.Engine
	service    *orders.Service
	background *api.Background
}

// settings are what a test may change.
type settings struct {
	pool      []func(*pgxpool.Config)
	transport http.RoundTripper           // to the provider
	ready     func(context.Context) error // nil: ask the database
	noWebhook bool

	waiters    int // see idempotency.Config
	background int // see api.NewBackground
	work       int // see limiter.Config
	backlog    int
}

// start boots an app, which ends with the test. Whatever the test does, no
// secret that it sends may be in the log.
func start(t *testing.T, change ...func(*settings)) *app {
	t.Helper()
	s := settings{waiters: 1000, background: 100, work: 1000, backlog: 1000}
	for _, c := range change {
		c(&s)
	}
	a := &app{stripe: stripetest.New(stripetest.Options{CompareBytes: true}), log: newLog(), secrets: &secrets{}}
	a.pool = idempotencytest.NewPool(t, s.pool...)
	if s.ready == nil {
		s.ready = a.pool.Ping
	}
	var err error
	a.account, a.apiKey, err = accounts.Create(t.Context(), a.pool, "test")
	require.NoError(t, err)
	authenticator := a.newAuthenticator(t)
	stripeKey := "sk_test_canary" + rand.Text()
	a.secrets.add(a.apiKey, stripeKey, email, "CANARY", "_secret_")
	if !s.noWebhook {
		a.webhook = "whsec_" + rand.Text()
		a.secrets.add(a.webhook)
	}

	provider := httptest.NewServer(a.stripe)
	logger := slog.New(slog.NewJSONHandler(a.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	client, err := payments.New(payments.Config{
		SecretKey: stripeKey,
		BaseURL:   provider.URL,
		Timeout:   stepTimeout,
		Logger:    logger,
		Transport: limiter.Transport(cmp.Or[http.RoundTripper](s.transport, payments.NewTransport())),
		Backoff:   time.Millisecond,

		WebhookSecret: a.webhook,
	})
	require.NoError(t, err)
	a.limiter, err = limiter.New(limiter.Config{Work: s.work, Backlog: s.backlog, Timeout: time.Minute, InFlight: 10_000})
	require.NoError(t, err)
	engine, err := idempotency.New(a.pool, idempotency.Config{
		LockTimeout: time.Minute, Clock: time.Now, Waiters: s.waiters, Logger: logger,
	})
	require.NoError(t, err)
	service, err := orders.New(orders.Config{
		Engine: engine, Pool: a.pool, Payments: client, StepTimeout: stepTimeout, Logger: logger,
	})
	require.NoError(t, err)
	a.engine, a.service = engine, service
	a.background, err = api.NewBackground(s.background, logger)
	require.NoError(t, err)
	a.router, err = api.NewRouter(api.Config{
		Orders: service, Authenticator: authenticator, Limiter: a.limiter, Spec: ordersapi.Spec, Logger: logger, Ready: api.NewReadiness(s.ready),
		Background: a.background, Retention: retention,
	})
	require.NoError(t, err)

	server := httptest.NewUnstartedServer(nil)
	server.Config = api.NewServer(a.router, 3*stepTimeout, logger)
	server.Start()
	a.server, a.url = server.Config, server.URL
	transport := &http.Transport{MaxIdleConnsPerHost: 8}
	a.client = &http.Client{Transport: &checked{base: transport, secrets: a.secrets}}
	t.Cleanup(func() {
		a.stripe.Close()
		transport.CloseIdleConnections()
		server.Close()
		_ = a.background.Wait(context.Background())
		client.Close()
		provider.Close()
		if t.Failed() {
			t.Log(a.log.String())
		}
		require.Empty(t, a.secrets.in(a.log.String()), "secrets in the log")
	})
	return a
}

// newAuthenticator returns an Authenticator with a pool of its own, which is
// configured as the app's pool. Its clock only moves in [app.expireAPIKeys].
func (a *app) newAuthenticator(t *testing.T) *accounts.Authenticator {
	t.Helper()
	config := a.pool.Config()
	config.MaxConns = accounts.Connections
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	authenticator, err := accounts.NewAuthenticator(accounts.Config{Pool: pool, Clock: func() time.Time {
		return time.Unix(0, a.authClock.Load())
	}})
	require.NoError(t, err)
	return authenticator
}

// expireAPIKeys makes every cached API key so old that it is looked up again.
func (a *app) expireAPIKeys() { a.authClock.Add(int64(5 * time.Second)) }

// An answer is a response, read to its end.
type answer struct {
	status int
	header http.Header
	body   []byte
	head   bool // to HEAD, so without a body
	closes bool // the server said that it closes the connection
}

// problem reads the answer as a problem document.
func (got answer) problem(t *testing.T) problem {
	t.Helper()
	var p problem
	require.NoError(t, json.Unmarshal(got.body, &p), "%d %s", got.status, got.body)
	return p
}

// order reads the answer as an order.
func (got answer) order(t *testing.T) orders.Order {
	t.Helper()
	var o orders.Order
	require.NoError(t, json.Unmarshal(got.body, &o), "%d %s", got.status, got.body)
	return o
}

// edit changes a request before it is sent.
type edit func(*http.Request)

// header sets a header, with one line per value; without values it removes it.
func header(name string, values ...string) edit {
	return func(r *http.Request) {
		delete(r.Header, name)
		if len(values) > 0 {
			r.Header[name] = values
		}
	}
}

// chunked sends the body without saying how long it is.
func chunked(r *http.Request) { r.ContentLength, r.GetBody = -1, nil }

// request makes a request with the app's API key. One with a body is JSON.
func (a *app) request(t *testing.T, method, path, body string, edits ...edit) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, a.url+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+a.apiKey)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, e := range edits {
		e(req)
	}
	return req
}

// send sends a request and reads the answer.
func (a *app) send(t *testing.T, method, path, body string, edits ...edit) answer {
	t.Helper()
	got, err := a.try(a.request(t, method, path, body, edits...))
	require.NoError(t, err)
	return got
}

func (a *app) get(t *testing.T, path string, edits ...edit) answer {
	t.Helper()
	return a.send(t, http.MethodGet, path, "", edits...)
}

// create sends POST /v1/orders.
func (a *app) create(t *testing.T, key, body string, edits ...edit) answer {
	t.Helper()
	return a.send(t, http.MethodPost, "/v1/orders", body, append([]edit{header("Idempotency-Key", key)}, edits...)...)
}

// try is send for goroutines and for requests that may get no answer.
func (a *app) try(req *http.Request) (answer, error) {
	resp, err := a.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	return read(resp)
}

// outcome is what a request in the background came to.
type outcome struct {
	answer
	err error
}

func (a *app) sendAsync(req *http.Request) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		got, err := a.try(req)
		done <- outcome{got, err}
	}()
	return done
}

// createAsync sends POST /v1/orders in the background.
func (a *app) createAsync(t *testing.T, key, body string, edits ...edit) <-chan outcome {
	t.Helper()
	edits = append([]edit{header("Idempotency-Key", key)}, edits...)
	return a.sendAsync(a.request(t, http.MethodPost, "/v1/orders", body, edits...))
}

func read(resp *http.Response) (answer, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{
		status: resp.StatusCode,
		header: resp.Header,
		body:   body,
		head:   resp.Request != nil && resp.Request.Method == http.MethodHead,
		closes: resp.Close,
	}, err
}

// email and the values with CANARY in them must not be in any log.
const email = "canary.ada@example.com"

// body is a valid order of 4300 cents.
func body(change ...func(members map[string]any)) string {
	members := map[string]any{
		"email":          email,
		"currency":       "usd",
		"payment_method": "pm_card_visa",
		"items": []any{
			map[string]any{"sku": "TEA-CANARY", "description": "Assam CANARY", "quantity": 2, "unit_amount": 1250},
			map[string]any{"sku": "MUG-CANARY", "quantity": 1, "unit_amount": 1800},
		},
		"metadata": map[string]any{"note": "CANARY"},
	}
	for _, c := range change {
		c(members)
	}
	encoded, err := json.Marshal(members)
	if err != nil {
		panic(err)
	}
	return string(encoded)
}

// with sets a member of the body.
func with(name string, value any) func(map[string]any) {
	return func(members map[string]any) { members[name] = value }
}

// newKey returns an idempotency key that nobody has used.
func newKey() string { return "key-" + rand.Text() }

// rows counts the rows of every table that a request can write.
func (a *app) rows(t *testing.T) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, table := range []string{"idempotency_keys", "orders", "refunds", "audit_records", "staged_jobs"} {
		var n int
		require.NoError(t, a.pool.QueryRow(t.Context(), "SELECT count(*) FROM "+pgx.Identifier{table}.Sanitize()).Scan(&n))
		counts[table] = n
	}
	return counts
}

// exec runs a statement on the app's database.
func (a *app) exec(t *testing.T, query string, arguments ...any) {
	t.Helper()
	_, err := a.pool.Exec(t.Context(), query, arguments...)
	require.NoError(t, err)
}

// requireOnePaidOrder says that database and provider hold what one order leaves
// that went well, however many requests it took.
func (a *app) requireOnePaidOrder(t *testing.T) {
	t.Helper()
	require.Equal(t, map[string]int{"idempotency_keys": 1, "orders": 1, "refunds": 0, "audit_records": 3, "staged_jobs": 1}, a.rows(t))
	require.Len(t, a.stripe.Charges(), 1)
	require.Equal(t, map[string]int64{"usd": 4300}, a.stripe.MoneyMoved())
	require.Empty(t, a.stripe.OrdersChargedTwice())
}
