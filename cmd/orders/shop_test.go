package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/payments/stripetest"
)

const confirmEndpoint = "POST /v1/payment_intents/{id}/confirm"

// shop is a database with one account and a stand-in for Stripe, and the
// environment that names both.
type shop struct {
	t       *testing.T
	pool    *pgxpool.Pool
	stripe  *stripetest.Server
	environ []string
	apiKey  string
}

func newShop(t *testing.T) *shop {
	t.Helper()
	pool := dbtest.New(t)
	s := &shop{t: t, pool: pool}
	var provider string
	s.stripe, provider = standIn(t)
	s.environ = environ(t,
		"DATABASE_URL="+dbtest.URL(pool), "STRIPE_SECRET_KEY=sk_test_shop", "STRIPE_API_BASE="+provider, "LISTEN_ADDR=127.0.0.1:0")
	s.apiKey = createAccount(t, s.environ)
	return s
}

// standIn starts a stand-in for Stripe and returns its URL.
func standIn(t *testing.T) (*stripetest.Server, string) {
	t.Helper()
	stripe := stripetest.New(stripetest.Options{})
	server := httptest.NewServer(stripe)
	t.Cleanup(server.Close)
	t.Cleanup(stripe.Close) // before the server's, which waits for held requests
	return stripe, server.URL
}

// createAccount returns the API key that the program prints.
func createAccount(t *testing.T, environ []string) string {
	t.Helper()
	code, stdout, stderr := run(t, environ, "accounts", "create", "--name", "My shop")
	require.Zero(t, code, stderr)
	lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	return lines[len(lines)-1]
}

// serve starts the API and waits until it listens.
func (s *shop) serve(environ []string, args ...string) *api {
	s.t.Helper()
	p := start(s.t, environ, append([]string{"serve"}, args...)...)
	address := p.waitFor(&p.stderr, `listening.*address"?[=:]"?([0-9.]+:[0-9]+)`)[1]
	return &api{process: p, base: "http://" + address, key: s.apiKey}
}

// with returns the environment with further settings.
func (s *shop) with(settings ...string) []string {
	return append(s.environ[:len(s.environ):len(s.environ)], settings...)
}

// api is a running API and the key to it.
type api struct {
	*process
	base string
	key  string
}

// answer is what the API says.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends one request, on a connection of its own.
func (a *api) do(ctx context.Context, method, path, body string, header http.Header) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return answer{}, err
	}
	request.Header = http.Header{"Authorization": {"Bearer " + a.key}, "Content-Type": {"application/json"}}
	for name, values := range header {
		request.Header[name] = values
	}
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(content)}, err
}

func (a *api) order(idempotencyKey, body string) (answer, error) {
	return a.do(context.Background(), http.MethodPost, "/v1/orders", body, http.Header{"Idempotency-Key": {idempotencyKey}})
}

// orderUntilFinal sends the same request again for as long as it is told to.
func (a *api) orderUntilFinal(idempotencyKey, body string) answer {
	a.t.Helper()
	var final answer
	eventually(a.t, func() bool {
		var err error
		final, err = a.order(idempotencyKey, body)
		require.NoError(a.t, err)
		return final.status != http.StatusConflict && final.status != http.StatusServiceUnavailable
	})
	return final
}

// untilPaid sends an order for as long as it is told to send it again, and
// returns the paid one. It may be called anywhere, since it fails no test.
func (a *api) untilPaid(ctx context.Context, idempotencyKey string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		got, err := a.do(ctx, http.MethodPost, "/v1/orders", tea, http.Header{"Idempotency-Key": {idempotencyKey}})
		switch {
		case err != nil:
			return answer{}, err
		case got.status == http.StatusCreated:
			return got, nil
		case got.status != http.StatusConflict && got.status != http.StatusServiceUnavailable,
			got.header.Get("Retry-After") == "":
			return answer{}, fmt.Errorf("%s: %d %s", idempotencyKey, got.status, got.body)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return answer{}, fmt.Errorf("%s: still %d %s", idempotencyKey, got.status, got.body)
		}
	}
}

// ready returns the status of /readyz, 0 when nobody answers.
func (a *api) ready() int {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	answer, err := a.do(ctx, http.MethodGet, "/readyz", "", nil)
	if err != nil {
		return 0
	}
	return answer.status
}

// tea is an order of two teas at 12.50.
const tea = `{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa",` +
	`"items":[{"sku":"tea","description":"Green tea","quantity":2,"unit_amount":1250}]}`

// requirePaid checks that an answer is a new paid order of 25.00 and returns
// its id.
func requirePaid(t *testing.T, a answer) string {
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
