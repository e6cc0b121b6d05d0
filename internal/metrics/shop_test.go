package metrics_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	ordersapi "example.com/orders-api"
	"example.com/orders-api/api"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/metrics"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dbtest.Main{M: m}) }

const (
	retention = 72 * time.Hour
	grace     = 5 * time.Minute

	createEndpoint  = "POST /v1/payment_intents"
	confirmEndpoint = "POST /v1/payment_intents/{id}/confirm"
	readEndpoint    = "GET /v1/payment_intents/{id}"
)

var discard = slog.New(slog.DiscardHandler)

// shop is the API on a database, observed.
type shop struct {
	t          *testing.T
	pool       *pgxpool.Pool
	stripe     *stripetest.Server
	metrics    *metrics.Metrics
	background *api.Background
	account    uuid.UUID
	apiKey     string
	url        string
	client     *http.Client
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{t: t, pool: idempotencytest.NewPool(t), stripe: stripetest.New(stripetest.Options{})}
	var err error
	s.account, s.apiKey, err = accounts.Create(t.Context(), s.pool, "test")
	require.NoError(t, err)
	gate, err := idempotency.NewGate(10, 20)
	require.NoError(t, err)
	s.metrics, err = metrics.New(metrics.Config{Pool: s.pool, Logger: discard, Clock: time.Now, Runs: gate, Retention: retention, Grace: grace})
	require.NoError(t, err)
	provider := httptest.NewServer(s.stripe)
	client, err := payments.New(payments.Config{
		SecretKey: "sk_test_metrics", BaseURL: provider.URL, Timeout: 5 * time.Second, Backoff: time.Millisecond,
		Observe: s.metrics.ProviderAttempt, Logger: discard,
	})
	require.NoError(t, err)
	engine, err := idempotency.New(s.pool, idempotency.Config{
		LockTimeout: time.Minute, Clock: time.Now, Runs: gate, Observe: s.metrics.Phase, Logger: discard,
	})
	require.NoError(t, err)
	service, err := orders.New(orders.Config{Engine: engine, Pool: s.pool, Payments: client, StepTimeout: 5 * time.Second, Logger: discard})
	require.NoError(t, err)
	s.background, err = api.NewBackground(10, discard)
	require.NoError(t, err)
	reads, err := idempotency.NewGate(10, 20)
	require.NoError(t, err)
	authenticator, err := accounts.NewAuthenticator(accounts.Config{Pool: s.pool, Clock: time.Now})
	require.NoError(t, err)
	router, err := api.NewRouter(api.Config{
		Orders: service, Authenticator: authenticator, Limiter: &limiter.Limiter{}, Spec: ordersapi.Spec, Logger: discard, Ready: api.NewReadiness(s.pool.Ping),
		Background: s.background, Retention: retention, Observer: s.metrics.API(),
	})
	require.NoError(t, err)
	server := httptest.NewServer(router)
	s.url, s.client = server.URL, server.Client()
	t.Cleanup(func() {
		s.stripe.Close()
		server.Close()
		client.Close()
		provider.Close()
	})
	return s
}

const tea = `{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa",` +
	`"items":[{"sku":"tea","quantity":2,"unit_amount":1250}]}`

// order sends an order and returns the answer's status.
func (s *shop) order(key, body string, headers ...string) int {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+"/v1/orders", strings.NewReader(body))
	require.NoError(s.t, err)
	request.Header.Set("Authorization", "Bearer "+s.apiKey)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", key)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := s.client.Do(request)
	require.NoError(s.t, err)
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(s.t, err)
	return response.StatusCode
}

// exec runs a statement on the shop's database.
func (s *shop) exec(query string, arguments ...any) {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), query, arguments...)
	require.NoError(s.t, err)
}

// samples are values by metric and labels, as they are written: name{label="x"}.
type samples map[string]float64

// scrape reads all metrics, as Prometheus would.
func scrape(t *testing.T, m *metrics.Metrics) samples {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	found := samples{}
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		line = strings.TrimSuffix(line, "\n")
		space := strings.LastIndex(line, " ")
		value, err := strconv.ParseFloat(line[space+1:], 64)
		require.NoError(t, err, line)
		found[line[:space]] = value
	}
	return found
}

// of returns the samples of a metric that are not 0, by the value of its only label.
func (s samples) of(metric string) map[string]int {
	found := map[string]int{}
	for name, value := range s {
		rest, matches := strings.CutPrefix(name, metric+`{`)
		if !matches || value == 0 {
			continue
		}
		_, label, _ := strings.Cut(strings.TrimSuffix(rest, `"}`), `="`)
		found[label] = int(value)
	}
	return found
}
