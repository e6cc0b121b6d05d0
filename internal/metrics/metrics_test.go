package metrics_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/api"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/admission"
	"example.com/orders-api/internal/metrics"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dbtest.Main{M: m}) }

const (
	retention = 72 * time.Hour

	createEndpoint  = "POST /v1/payment_intents"
	confirmEndpoint = "POST /v1/payment_intents/{id}/confirm"
)

var discard = slog.New(slog.DiscardHandler)

type fixture struct {
	*orderstest.Shop

	t       *testing.T
	metrics *metrics.Metrics
	router  http.Handler
	apiKey  string
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
	f.router, f.apiKey = f.API(t, api.Config{Limiter: limiter, OnRequest: f.metrics.OnRequest})
	t.Cleanup(f.Stripe.Close)
	return f
}

const tea = `{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa",` +
	`"items":[{"sku":"tea","quantity":2,"unit_amount":1250}]}`

func (f *fixture) send(method, path, body string, header http.Header) int {
	request := httptest.NewRequestWithContext(f.t.Context(), method, path, strings.NewReader(body))
	request.Header = header
	w := httptest.NewRecorder()
	f.router.ServeHTTP(w, request)
	return w.Code
}

func (f *fixture) order(key, body string) int {
	return f.send(http.MethodPost, "/v1/orders", body, http.Header{
		"Authorization": {"Bearer " + f.apiKey}, "Content-Type": {"application/json"}, "Idempotency-Key": {key},
	})
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

// The outcomes are those of the log, which package api tests.
func TestAPI_outcomes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	require.Equal(t, http.StatusCreated, f.order("an-order-of-teas-01", tea))
	require.Equal(t, http.StatusCreated, f.order("an-order-of-teas-01", tea))
	require.Equal(t, http.StatusBadRequest, f.order("no key", tea), "has no key to count")
	f.Stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: confirmEndpoint})
	require.Equal(t, http.StatusServiceUnavailable, f.order("an-order-of-teas-02", tea))

	found := scrape(t, f.metrics)
	require.Equal(t, map[string]int{"created": 1, "replayed": 1, "retryable": 1}, found.of("orders_requests_total"))
	for name, want := range map[string]float64{
		`orders_provider_request_duration_seconds_count{call="create",outcome="answered"}`:                2,
		`orders_http_request_duration_seconds_count{method="POST",route="/v1/orders",status_class="2xx"}`: 2,
		`orders_http_request_duration_seconds_count{method="POST",route="/v1/orders",status_class="5xx"}`: 1,
	} {
		require.InDelta(t, want, found[name], 0, name)
	}
}

// increase() ignores the first value of a series.
func TestNew_zero(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	start := scrape(t, f.metrics)
	f.Stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: createEndpoint})
	require.Equal(t, http.StatusServiceUnavailable, f.order("an-order-of-teas-01", tea))
	f.order("an-order-of-teas-02", strings.Replace(tea, "pm_card_visa", "pm_unknown", 1))
	f.metrics.Maintained("completer", nil)
	f.metrics.Maintained("completer", postgres.ErrUnavailable)
	f.metrics.Maintained("reaper", postgres.ErrUnavailable)
	counted := regexp.MustCompile(`needs_operator|refused|lease_lost|maintenance_runs`)
	found := scrape(t, f.metrics)
	for name := range found {
		if counted.MatchString(name) {
			require.Contains(t, start, name)
			require.Zero(t, start[name], name)
		}
	}
	for _, name := range []string{
		`orders_provider_request_duration_seconds_count{call="create",outcome="needs_operator"}`,
		`orders_maintenance_runs_total{command="completer",result="ok"}`,
		`orders_maintenance_runs_total{command="completer",result="failed"}`,
		`orders_maintenance_runs_total{command="reaper",result="failed"}`,
	} {
		require.InDelta(t, 1, found[name], 0, name)
	}

	w := httptest.NewRecorder()
	f.metrics.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	problems, err := promlint.New(w.Body).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestLimiter(t *testing.T) {
	t.Parallel()
	l := admission.New(admission.Config{}) // without permits
	m := metrics.New(metrics.Config{Pool: idempotencytest.NewPool(t), Ready: ready, Logger: discard, Limiter: l})
	require.ErrorIs(t, l.Do(t.Context(), func(context.Context) error { return nil }), admission.ErrOverloaded)
	require.InDelta(t, 1, scrape(t, m)["orders_limiter_rejected_total"], 0)
}

func TestAPI_labelsAreBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, method := range []string{"BREW", "STEEP", http.MethodGet} {
		for _, path := range []string{"/canary", "/v1/canary", "/v1/orders/canary", "/problems/canary"} {
			f.send(method, path, "", http.Header{})
		}
	}
	require.Equal(t, http.StatusCreated, f.order("canary-canary-canary", tea))
	for name := range scrape(t, f.metrics) {
		require.NotContains(t, name, "canary")
		require.NotContains(t, name, "BREW")
		require.NotContains(t, name, f.Account.String())
		require.NotContains(t, name, "ada@example.com")
	}
}

func TestScraped(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	empty := scrape(t, f.metrics)
	for _, name := range []string{
		"orders_oldest_unfinished_key_age_seconds", "orders_oldest_finished_key_age_seconds",
		`orders_jobs_pending{kind="receipt"}`, `orders_jobs_pending{kind="event"}`, `orders_jobs_failed{kind="event"}`, `orders_oldest_job_age_seconds{kind="event"}`,
	} {
		require.Contains(t, empty, name)
		require.Zero(t, empty[name], name)
	}
	require.InDelta(t, 1, empty["orders_database_up"], 0)
	require.InDelta(t, retention.Seconds(), empty["orders_key_retention_seconds"], 0)

	put := func(key string, point idempotency.RecoveryPoint) uuid.UUID {
		return idempotencytest.PutKey(t, f.Pool, idempotency.Request{
			AccountID: f.Account, Key: idempotency.Key(key), Method: "POST", Path: "/v1/orders", Params: []byte("{}"),
		}, "create_order", point)
	}
	set := func(id uuid.UUID, change string, age time.Duration) {
		f.exec("UPDATE idempotency_keys SET "+change+" WHERE id = $2", age, id)
	}
	put("young-unfinished-key", "charge_created")
	set(put("older-unfinished-key", "charge_created"), "created_at = now() - $1::interval, updated_at = now() - $1::interval", 2*time.Hour)
	set(put("an-abandoned-key-001", "order_created"), "created_at = now() - $1::interval, updated_at = now() - $1::interval", 59*time.Minute)
	set(put("a-key-of-a-clock-ahead", "order_created"), "created_at = now() + $1::interval", 3*time.Hour)
	set(put("a-key-with-an-action", "charge_created"), "action_required_at = now(), updated_at = now(), created_at = now() - $1::interval", 4*time.Hour)
	set(put("an-old-finished-key1", idempotency.Finished), "finished_at = now() - $1::interval", 80*time.Hour)
	f.exec("INSERT INTO staged_jobs (id, account_id, kind, args) VALUES (gen_random_uuid(), $1, 'receipt', '{}')", f.Account)
	f.exec(`
INSERT INTO staged_jobs (id, account_id, kind, args, created_at, failed_at)
VALUES (gen_random_uuid(), gen_random_uuid(), 'event', '{}', now() - interval '1 hour', NULL),
       (gen_random_uuid(), gen_random_uuid(), 'event', '{}', now() - interval '9 hours', now())`)

	found := scrape(t, f.metrics)
	for name, want := range map[string]float64{
		`orders_unfinished_keys{operation="create_order",recovery_point="charge_created"}`: 2,
		`orders_unfinished_keys{operation="create_order",recovery_point="order_created"}`:  2,
		`orders_stuck_keys{operation="create_order",recovery_point="charge_created"}`:      1,
		`orders_stuck_keys{operation="create_order",recovery_point="order_created"}`:       1,
		`orders_jobs_pending{kind="receipt"}`:                                              1,
		`orders_jobs_pending{kind="event"}`:                                                1,
		`orders_jobs_failed{kind="event"}`:                                                 1,
	} {
		require.InDelta(t, want, found[name], 0, name)
	}
	const tolerance = 60.0 // seconds, for a slow machine
	for name, want := range map[string]time.Duration{
		"orders_oldest_unfinished_key_age_seconds":    4 * time.Hour, // it requires an action
		"orders_oldest_finished_key_age_seconds":      80 * time.Hour,
		`orders_oldest_job_age_seconds{kind="event"}`: time.Hour,
	} {
		require.InDelta(t, want.Seconds(), found[name], tolerance, name)
	}
}

func TestScraped_databaseFails(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*testing.T, *fixture){
		"hangs": func(t *testing.T, f *fixture) {
			tx, err := f.Pool.Begin(t.Context())
			require.NoError(t, err)
			t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
			_, err = tx.Exec(t.Context(), "LOCK TABLE idempotency_keys")
			require.NoError(t, err)
		},
		"is unavailable": func(_ *testing.T, f *fixture) { f.Pool.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			fail(t, f)
			found := scrape(t, f.metrics)
			require.Contains(t, found, "orders_database_up")
			require.Zero(t, found["orders_database_up"])
			require.NotContains(t, found, "orders_oldest_unfinished_key_age_seconds", "0 would be wrong")
			require.NotContains(t, found, `orders_jobs_pending{kind="receipt"}`)
			require.Positive(t, found["go_goroutines"])
			require.Contains(t, found, `orders_requests_total{outcome="lease_lost"}`)
			require.Contains(t, found, "orders_pool_wait_seconds_total")
		})
	}
}
