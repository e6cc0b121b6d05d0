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

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/api"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/admission"
	"example.com/orders-api/internal/metrics"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dbtest.Main{M: m}) }

const (
	retention = 72 * time.Hour

	createEndpoint  = "POST /v1/payment_intents"
	confirmEndpoint = "POST /v1/payment_intents/{id}/confirm"
	readEndpoint    = "GET /v1/payment_intents/{id}"
)

var discard = slog.New(slog.DiscardHandler)

type fixture struct {
	*orderstest.Shop

	t          *testing.T
	metrics    *metrics.Metrics
	background api.Background
	apiKey     string
	url        string
	client     *http.Client
}

func ready() error { return nil }

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t}
	pool := idempotencytest.NewPool(t)
	limiter := admission.New(admission.Config{Permits: 10, Backlog: 20, Wait: time.Second})
	f.metrics = metrics.New(metrics.Config{
		Pool: pool, Ready: ready, Logger: discard, Limiter: limiter, Retention: retention,
	})
	f.Shop = orderstest.New(t, orderstest.Options{
		Pool:        pool,
		StepTimeout: 5 * time.Second,
		Payments:    payments.Config{Transport: admission.SuspendDuring(payments.NewTransport()), Observe: f.metrics.ProviderAttempt},
		Engine:      idempotency.Config{Waiters: 10},
	})
	f.background = make(api.Background, 10)
	router, apiKey := f.API(t, api.Config{Limiter: limiter, Background: f.background, OnRequest: f.metrics.OnRequest})
	server := httptest.NewServer(router)
	f.apiKey, f.url, f.client = apiKey, server.URL, server.Client()
	t.Cleanup(func() {
		f.Stripe.Close()
		server.Close()
	})
	return f
}

const tea = `{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa",` +
	`"items":[{"sku":"tea","quantity":2,"unit_amount":1250}]}`

func (f *fixture) order(key, body string, headers ...string) int {
	f.t.Helper()
	request, err := http.NewRequestWithContext(f.t.Context(), http.MethodPost, f.url+"/v1/orders", strings.NewReader(body))
	require.NoError(f.t, err)
	request.Header.Set("Authorization", "Bearer "+f.apiKey)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", key)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := f.client.Do(request)
	require.NoError(f.t, err)
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(f.t, err)
	return response.StatusCode
}

func (f *fixture) exec(query string, arguments ...any) {
	f.t.Helper()
	_, err := f.Pool.Exec(f.t.Context(), query, arguments...)
	require.NoError(f.t, err)
}

type samples map[string]float64

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
