package metrics_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/admission"
	"example.com/orders-api/internal/metrics"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/payments/stripetest"
)

func TestAPI_outcomes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)

	require.Equal(t, http.StatusCreated, f.order("an-order-of-teas-01", tea))
	require.Equal(t, http.StatusCreated, f.order("an-order-of-teas-01", tea))
	require.Equal(t, http.StatusCreated, f.order("an-order-of-teas-01", tea))
	require.Equal(t, http.StatusUnprocessableEntity, f.order("an-order-of-teas-01", `{"currency":"eur"}`))
	require.Equal(t, http.StatusUnprocessableEntity, f.order("an-order-of-nothing", `{}`))
	require.Equal(t, http.StatusBadRequest, f.order("no key", tea), "has no key to count")

	down := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Endpoint: confirmEndpoint, Times: stripetest.Always})
	unreadable := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Endpoint: readEndpoint, Times: stripetest.Always})
	require.Equal(t, http.StatusServiceUnavailable, f.order("an-order-of-teas-02", tea))
	down.Release()
	unreadable.Release()
	require.Equal(t, http.StatusCreated, f.order("an-order-of-teas-02", tea))

	held := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	running := make(chan int, 1)
	go func() { running <- f.order("an-order-of-teas-03", tea) }()
	<-held.Reached()
	require.Equal(t, http.StatusConflict, f.order("an-order-of-teas-03", tea))
	f.exec("UPDATE idempotency_keys SET lease_token = gen_random_uuid() WHERE locked_at IS NOT NULL") // as a takeover does
	held.Release()
	require.Equal(t, http.StatusConflict, <-running)

	require.Equal(t, http.StatusAccepted, f.order("an-order-of-teas-04", tea, "Prefer", "respond-async"))
	require.NoError(t, f.background.Wait(t.Context()))

	found := scrape(t, f.metrics)
	require.Equal(t, map[string]int{
		"created": 1, "replayed": 2, "reused": 1, "rejected": 1, "retryable": 1, "recovered": 1,
		"in_progress": 1, "lease_lost": 1, "accepted": 1,
	}, found.of("orders_requests_total"))
}

// increase() ignores the first value of a series.
func TestNew_zero(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	start := scrape(t, f.metrics)
	f.Stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: createEndpoint})
	require.Equal(t, http.StatusServiceUnavailable, f.order("an-order-of-teas-01", tea))
	f.order("an-order-of-teas-02", strings.Replace(tea, "pm_card_visa", "pm_unknown", 1))
	f.metrics.Maintained("completer", postgres.ErrUnavailable)
	f.metrics.Maintained("reaper", postgres.ErrUnavailable)
	counted := regexp.MustCompile(`needs_operator|refused|lease_lost|maintenance_runs`)
	for name := range scrape(t, f.metrics) {
		if counted.MatchString(name) {
			require.Contains(t, start, name)
			require.Zero(t, start[name], name)
		}
	}
}

func TestRequests_ofAnOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	require.Equal(t, http.StatusCreated, f.order("an-order-of-teas-01", tea))
	denied := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: createEndpoint})
	require.Equal(t, http.StatusServiceUnavailable, f.order("an-order-of-teas-02", tea))
	require.Equal(t, 1, denied.Triggered())
	require.Equal(t, http.StatusUnprocessableEntity, f.order("an-order-of-nothing", `{}`))

	found := scrape(t, f.metrics)
	for name, want := range map[string]float64{
		`orders_provider_request_duration_seconds_count{call="create",outcome="answered"}`:                1,
		`orders_provider_request_duration_seconds_count{call="create",outcome="needs_operator"}`:          1,
		`orders_provider_request_duration_seconds_count{call="confirm",outcome="answered"}`:               1,
		`orders_http_request_duration_seconds_count{method="POST",route="/v1/orders",status_class="2xx"}`: 1,
		`orders_http_request_duration_seconds_count{method="POST",route="/v1/orders",status_class="5xx"}`: 1,
	} {
		require.Contains(t, found, name)
		require.InDelta(t, want, found[name], 0, name)
	}
}

func TestLimiter(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := admission.New(admission.Config{Permits: 1, Backlog: 1, Wait: time.Minute})
	m := metrics.New(metrics.Config{Pool: f.Pool, Ready: ready, Logger: discard, Limiter: l})

	nothing := func(context.Context) error { return nil }
	waiting := make(chan error, 1)
	require.NoError(t, l.Do(t.Context(), func(context.Context) error {
		go func() { waiting <- l.Do(t.Context(), nothing) }()
		require.Eventually(t, func() bool { return l.Stats().Backlog == 1 }, time.Minute, time.Millisecond)
		require.ErrorIs(t, l.Do(t.Context(), nothing), admission.ErrOverloaded)
		require.InDelta(t, 1, scrape(t, m)["orders_limiter_rejected_total"], 0)
		return nil
	}))
	require.NoError(t, <-waiting)
}

func TestAPI_labelsAreBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, method := range []string{"BREW", "STEEP", http.MethodGet} {
		for _, path := range []string{"/canary", "/v1/canary", "/v1/orders/canary", "/problems/canary"} {
			request, err := http.NewRequestWithContext(t.Context(), method, f.url+path, http.NoBody)
			require.NoError(t, err)
			response, err := f.client.Do(request)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
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

func TestMaintenance(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.metrics.Maintained("completer", nil)
	f.metrics.Maintained("completer", postgres.ErrUnavailable)
	f.metrics.Maintained("reaper", nil)
	found := scrape(t, f.metrics)
	require.InDelta(t, 1, found[`orders_maintenance_runs_total{command="completer",result="ok"}`], 0)
	require.InDelta(t, 1, found[`orders_maintenance_runs_total{command="completer",result="failed"}`], 0)
	require.InDelta(t, 1, found[`orders_maintenance_runs_total{command="reaper",result="ok"}`], 0)

	w := httptest.NewRecorder()
	f.metrics.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	problems, err := promlint.New(w.Body).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
}
