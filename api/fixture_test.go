package api_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	ordersapi "example.com/orders-api"
	"example.com/orders-api/api"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/admission"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/orders"
	"example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

const stepTimeout = 50 * time.Second

type fixture struct {
	*orderstest.Shop

	router  chi.Router
	url     string
	client  *http.Client
	apiKey  string
	webhook string
	log     *logCapture
	secrets *secrets

	limiter *admission.Limiter

	authClock atomic.Int64 // time of the Authenticator's clock, in nanoseconds

	background api.Background
}

type options struct {
	pool      []func(*pgxpool.Config)
	transport http.RoundTripper
	ready     *api.Readiness // nil: ready
	specs     bool           // the contract is served
	noWebhook bool

	waiters    int
	background int
	permits    int
	backlog    int
}

func newFixture(t testing.TB, change ...func(*options)) *fixture {
	t.Helper()
	s := options{waiters: 1000, background: 100, permits: 1000, backlog: 1000}
	for _, c := range change {
		c(&s)
	}
	f := &fixture{log: &logCapture{}, secrets: &secrets{}}
	logger := slog.New(slog.NewJSONHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	stripeKey := "sk_test_canary" + rand.Text()
	f.secrets.add(stripeKey, email, "CANARY", "_secret_", orderstest.WebhookSecret)
	f.Shop = orderstest.New(t, orderstest.Options{
		Pool:        idempotencytest.NewPool(t, s.pool...),
		Logger:      logger,
		StepTimeout: stepTimeout,
		NoWebhook:   s.noWebhook,
		Payments: payments.Config{
			SecretKey: stripeKey,
			Transport: admission.SuspendDuring(cmp.Or[http.RoundTripper](s.transport, payments.NewTransport())),
		},
		Engine: idempotency.Config{Waiters: s.waiters},
	})
	if s.ready == nil {
		s.ready = api.NewReadiness(func() error { return nil })
	}
	f.limiter = admission.New(admission.Config{Permits: s.permits, Backlog: s.backlog, Wait: time.Minute})
	f.background = make(api.Background, s.background)
	authenticator := accounts.NewAuthenticator(f.Pool, func() time.Time { return time.Unix(0, f.authClock.Load()) })
	config := api.Config{Authenticator: authenticator, Limiter: f.limiter, Ready: s.ready, Background: f.background, Own: registerOwn(t, f)}
	if s.specs {
		config.Spec = ordersapi.Spec
	}
	f.router, f.apiKey = f.API(t, config)
	f.secrets.add(f.apiKey)

	server := httptest.NewUnstartedServer(nil)
	server.Config = api.NewServer(f.router, logger)
	server.Start()
	f.url = server.URL
	transport := &http.Transport{MaxIdleConnsPerHost: 8}
	f.client = &http.Client{Transport: &contractTransport{base: transport, secrets: f.secrets}}
	t.Cleanup(func() {
		f.Stripe.Close()
		transport.CloseIdleConnections()
		server.Close()
		_ = f.background.Wait(context.Background())
		if t.Failed() {
			t.Log(f.log.String())
		}
		require.Empty(t, f.secrets.in(f.log.String()), "secrets in the log")
	})
	return f
}

func (f *fixture) expireAPIKeys() { f.authClock.Add(int64(5 * time.Second)) }

type response struct {
	status int
	header http.Header
	body   []byte
	head   bool
	closes bool
}

func decode[T any](t *testing.T, got response) (value T) {
	t.Helper()
	require.NoError(t, json.Unmarshal(got.body, &value), "%d %s", got.status, got.body)
	return value
}

func (got response) problem(t *testing.T) problem    { return decode[problem](t, got) }
func (got response) order(t *testing.T) orders.Order { return decode[orders.Order](t, got) }

type requestEdit func(*http.Request)

func header(name string, values ...string) requestEdit {
	return func(r *http.Request) {
		delete(r.Header, name)
		if len(values) > 0 {
			r.Header[name] = values
		}
	}
}

func chunked(r *http.Request) { r.ContentLength, r.GetBody = -1, nil }

func (f *fixture) request(t *testing.T, method, path, body string, edits ...requestEdit) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, f.url+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+f.apiKey)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, e := range edits {
		e(req)
	}
	return req
}

func (f *fixture) send(t *testing.T, method, path, body string, edits ...requestEdit) response {
	t.Helper()
	got, err := f.do(f.request(t, method, path, body, edits...))
	require.NoError(t, err)
	return got
}

func (f *fixture) get(t *testing.T, path string, edits ...requestEdit) response {
	t.Helper()
	return f.send(t, http.MethodGet, path, "", edits...)
}

func (f *fixture) create(t *testing.T, key, body string, edits ...requestEdit) response {
	t.Helper()
	return f.send(t, http.MethodPost, "/v1/orders", body, append([]requestEdit{header("Idempotency-Key", key)}, edits...)...)
}

func (f *fixture) do(req *http.Request) (response, error) {
	resp, err := f.client.Do(req)
	if err != nil {
		return response{}, err
	}
	return readResponse(resp)
}

type asyncResponse struct {
	response
	err error
}

func (f *fixture) sendAsync(req *http.Request) <-chan asyncResponse {
	done := make(chan asyncResponse, 1)
	go func() {
		got, err := f.do(req)
		done <- asyncResponse{got, err}
	}()
	return done
}

func (f *fixture) createAsync(t *testing.T, key, body string, edits ...requestEdit) <-chan asyncResponse {
	t.Helper()
	edits = append([]requestEdit{header("Idempotency-Key", key)}, edits...)
	return f.sendAsync(f.request(t, http.MethodPost, "/v1/orders", body, edits...))
}

func (f *fixture) createHeld(t *testing.T, key, body string) (*stripetest.Injection, <-chan asyncResponse) {
	t.Helper()
	held := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	running := f.createAsync(t, key, body)
	<-held.Reached()
	return held, running
}

func receive(t *testing.T, running <-chan asyncResponse) response {
	t.Helper()
	got := <-running
	require.NoError(t, got.err)
	return got.response
}

func readResponse(resp *http.Response) (response, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return response{
		status: resp.StatusCode,
		header: resp.Header,
		body:   body,
		head:   resp.Request != nil && resp.Request.Method == http.MethodHead,
		closes: resp.Close,
	}, err
}

// email, and every value that contains CANARY, must not be logged.
const email = "canary.ada@example.com"

func orderBody(change ...func(members map[string]any)) string {
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

func withMember(name string, value any) func(map[string]any) {
	return func(members map[string]any) { members[name] = value }
}

func (f *fixture) createPaid(t *testing.T, change ...func(map[string]any)) string {
	t.Helper()
	got := f.create(t, newKey(), orderBody(change...))
	require.Equal(t, http.StatusCreated, got.status, "%s", got.body)
	return got.header.Get("Location")
}

func newKey() string { return "key-" + rand.Text() }

func (f *fixture) rowCounts(t *testing.T) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, table := range []string{"idempotency_keys", "orders", "refunds", "audit_records", "staged_jobs"} {
		query := "SELECT count(*) FROM " + pgx.Identifier{table}.Sanitize()
		if table == "staged_jobs" {
			query += " WHERE kind <> 'provider_change'" // a run that finds an intent stages it, and it changes nothing
		}
		var n int
		require.NoError(t, f.Pool.QueryRow(t.Context(), query).Scan(&n))
		counts[table] = n
	}
	return counts
}

func (f *fixture) exec(t *testing.T, query string, arguments ...any) {
	t.Helper()
	_, err := f.Pool.Exec(t.Context(), query, arguments...)
	require.NoError(t, err)
}

func (f *fixture) requireOnePaidOrder(t *testing.T) {
	t.Helper()
	require.Equal(t, map[string]int{"idempotency_keys": 1, "orders": 1, "refunds": 0, "audit_records": 3, "staged_jobs": 1}, f.rowCounts(t))
	require.Len(t, f.Stripe.Charges(), 1)
	require.Equal(t, map[string]int64{"usd": 4300}, f.Stripe.MoneyMoved())
	require.Empty(t, f.Stripe.OrdersChargedTwice())
}

// TestMain checks for leaked goroutines, and after all tests for uncovered promises of the
// contract.
func TestMain(m *testing.M) { goleak.VerifyTestMain(suite{dbtest.Main{M: m}}) }

type suite struct{ dbtest.Main }

func (s suite) Run() int {
	flag.Parse()
	// The contract must be valid, except while its generated parts are written.
	if _, err := loadContract(); err != nil && flag.Lookup("update").Value.String() == "false" {
		fmt.Fprintln(os.Stderr, "openapi.yaml:", err)
		return 1
	}
	code := s.Main.Run()
	if code != 0 || !allTests() {
		return code
	}
	missing := coverage.missing()
	for _, promise := range missing {
		fmt.Fprintln(os.Stderr, "openapi.yaml promises what no test received:", promise)
	}
	if len(missing) > 0 {
		fmt.Fprintln(os.Stderr, "Call fixture.expectResponses with requests that get these responses, or remove the promises.")
	}
	return min(len(missing), 1)
}

func allTests() bool {
	for _, name := range []string{"test.run", "test.skip", "test.fuzz", "test.list"} {
		if flag.Lookup(name).Value.String() != "" {
			return false
		}
	}
	return true
}
