package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/accounts"
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
	opened  *api
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	pool := dbtest.New(t)
	f := &fixture{t: t, pool: pool}
	var provider string
	f.stripe, provider = fakeStripe(t)
	f.environ = environ(t,
		"DATABASE_URL="+dbtest.URL(pool), "STRIPE_SECRET_KEY=sk_test_fixture", "STRIPE_API_BASE="+provider, "LISTEN_ADDR=127.0.0.1:0",
		"RECEIPTS_FROM=Orders <receipts@example.com>")
	var err error
	_, f.apiKey, err = accounts.Create(t.Context(), pool, "Fixture")
	require.NoError(t, err)
	return f
}

func fakeStripe(t *testing.T) (*stripetest.Server, string) {
	t.Helper()
	stripe := stripetest.New(stripetest.Options{})
	server := httptest.NewServer(stripe)
	t.Cleanup(server.Close)
	t.Cleanup(stripe.Close) // before server.Close, which waits for held requests
	return stripe, server.URL
}

func createAccount(t *testing.T, environ []string) string {
	t.Helper()
	stdout, _ := succeed(t, environ, "accounts", "create", "--name", "Fixture")
	lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	return lines[len(lines)-1]
}

func (f *fixture) serve(environ []string, args ...string) *api {
	f.t.Helper()
	p := start(f.t, environ, append([]string{"serve"}, args...)...)
	address := p.waitFor(&p.stderr, `listening.*address"?[=:]"?([0-9.]+:[0-9]+)`)[1]
	return &api{process: p, base: "http://" + address, key: f.apiKey}
}

// shared returns an API for requests of this test that need no API of their own.
func (f *fixture) shared() *api {
	f.t.Helper()
	if f.opened == nil {
		f.opened = f.serve(f.environ)
	}
	return f.opened
}

func (f *fixture) with(settings ...string) []string {
	return append(f.environ[:len(f.environ):len(f.environ)], settings...)
}

type api struct {
	*process
	base string
	key  string
}

type apiResponse struct {
	status int
	header http.Header
	body   string
}

func (a *api) do(ctx context.Context, method, path, body string, header http.Header) (apiResponse, error) {
	request, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return apiResponse{}, err
	}
	request.Header = http.Header{"Authorization": {"Bearer " + a.key}, "Content-Type": {"application/json"}}
	for name, values := range header {
		request.Header[name] = values
	}
	client := http.Client{Timeout: waitTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return apiResponse{}, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return apiResponse{response.StatusCode, response.Header, string(content)}, err
}

func (a *api) order(idempotencyKey, body string) (apiResponse, error) {
	return a.do(context.Background(), http.MethodPost, "/v1/orders", body, http.Header{"Idempotency-Key": {idempotencyKey}})
}

func (a *api) mustDo(method, path, body string, header http.Header) apiResponse {
	a.t.Helper()
	response, err := a.do(context.Background(), method, path, body, header)
	require.NoError(a.t, err)
	return response
}

func (a *api) mustOrder(idempotencyKey, body string) apiResponse {
	a.t.Helper()
	return a.mustDo(http.MethodPost, "/v1/orders", body, http.Header{"Idempotency-Key": {idempotencyKey}})
}

type orderResult struct {
	apiResponse
	err error
}

func (a *api) orderAsync(idempotencyKey string, prefer ...string) <-chan orderResult {
	done := make(chan orderResult, 1)
	go func() {
		response, err := a.do(context.Background(), http.MethodPost, "/v1/orders", tea, http.Header{"Idempotency-Key": {idempotencyKey}, "Prefer": prefer})
		done <- orderResult{response, err}
	}()
	return done
}

func (a *api) ready() int {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	response, err := a.do(ctx, http.MethodGet, "/readyz", "", nil)
	if err != nil {
		return 0
	}
	return response.status
}

const tea = `{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa",` +
	`"items":[{"sku":"tea","description":"Green tea","quantity":2,"unit_amount":1250}]}`

func requirePaid(t *testing.T, a apiResponse) string {
	t.Helper()
	require.Equal(t, http.StatusCreated, a.status, a.body)
	var order struct {
		ID     uuid.UUID `json:"id"`
		Status string    `json:"status"`
		Amount int64     `json:"amount"`
	}
	require.NoError(t, json.Unmarshal([]byte(a.body), &order))
	require.Equal(t, "paid", order.Status)
	require.EqualValues(t, 2500, order.Amount)
	return order.ID.String()
}
