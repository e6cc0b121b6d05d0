package metrics_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/api"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

// Whatever becomes of a request is counted once, and as what it is.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	s := newShop(t)

	require.Equal(t, http.StatusCreated, s.order("an-order-of-teas-01", tea))
	require.Equal(t, http.StatusCreated, s.order("an-order-of-teas-01", tea))
	require.Equal(t, http.StatusCreated, s.order("an-order-of-teas-01", tea))
	require.Equal(t, http.StatusUnprocessableEntity, s.order("an-order-of-teas-01", `{"currency":"eur"}`))
	require.Equal(t, http.StatusUnprocessableEntity, s.order("an-order-of-nothing", `{}`))
	require.Equal(t, http.StatusBadRequest, s.order("no key", tea), "which is about no key at all")

	down := s.stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Endpoint: confirmEndpoint, Times: stripetest.Always})
	blind := s.stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Endpoint: readEndpoint, Times: stripetest.Always})
	require.Equal(t, http.StatusServiceUnavailable, s.order("an-order-of-teas-02", tea))
	down.Release()
	blind.Release()
	require.Equal(t, http.StatusCreated, s.order("an-order-of-teas-02", tea))

	held := s.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	running := make(chan int, 1)
	go func() { running <- s.order("an-order-of-teas-03", tea) }()
	<-held.Reached()
	require.Equal(t, http.StatusConflict, s.order("an-order-of-teas-03", tea))
	s.exec("UPDATE idempotency_keys SET lease_token = gen_random_uuid() WHERE locked_at IS NOT NULL") // as a takeover does
	held.Release()
	require.Equal(t, http.StatusConflict, <-running)

	require.Equal(t, http.StatusAccepted, s.order("an-order-of-teas-04", tea, "Prefer", "respond-async"))
	require.NoError(t, s.background.Wait(t.Context()))

	found := scrape(t, s.metrics)
	require.Equal(t, map[string]int{
		"created": 1, "replayed": 2, "reused": 1, "refused": 1, "unfinished": 1, "recovered": 1,
		"in_progress": 1, "lease_lost": 1, "accepted": 1,
	}, found.of("orders_requests_total"))
	require.Equal(t, map[string]int{"created": 1}, found.of("orders_background_runs_total"))
}

// A rate sees the first one only if there was a 0 before.
func TestOutcomes_areThereBeforeTheFirstRequest(t *testing.T) {
	t.Parallel()
	found := scrape(t, newShop(t).metrics)
	for _, outcome := range api.Outcomes() {
		require.Contains(t, found, `orders_requests_total{outcome="`+outcome+`"}`)
	}
}

// An order's time is that of its phases, and those are the provider's and ours.
func TestPhasesAndCalls(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	require.Equal(t, http.StatusCreated, s.order("an-order-of-teas-01", tea))
	denied := s.stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: createEndpoint})
	require.Equal(t, http.StatusServiceUnavailable, s.order("an-order-of-teas-02", tea))
	require.Equal(t, 1, denied.Triggered())

	found := scrape(t, s.metrics)
	for name, want := range map[string]float64{
		`orders_phase_record_duration_seconds_count{from="started",operation="create_order",result="ok"}`:         2,
		`orders_phase_record_duration_seconds_count{from="order_created",operation="create_order",result="ok"}`:   1,
		`orders_phase_record_duration_seconds_count{from="charge_created",operation="create_order",result="ok"}`:  1,
		`orders_phase_call_duration_seconds_count{from="order_created",operation="create_order",result="ok"}`:     1,
		`orders_phase_call_duration_seconds_count{from="order_created",operation="create_order",result="failed"}`: 1,
		`orders_phase_call_duration_seconds_count{from="charge_created",operation="create_order",result="ok"}`:    1,
		`orders_provider_request_duration_seconds_count{call="create",outcome="answered"}`:                        1,
		`orders_provider_request_duration_seconds_count{call="create",outcome="needs_operator"}`:                  1,
		`orders_provider_request_duration_seconds_count{call="confirm",outcome="answered"}`:                       1,
		`orders_http_request_duration_seconds_count{method="POST",route="/v1/orders",status="2xx"}`:               1,
		`orders_http_request_duration_seconds_count{method="POST",route="/v1/orders",status="5xx"}`:               1,
		`orders_gate_places{gate="runs"}`:            10,
		`orders_gate_at_work{gate="runs"}`:           0,
		`orders_gate_turned_away_total{gate="runs"}`: 0,
	} {
		require.Contains(t, found, name)
		require.InDelta(t, want, found[name], 0, name)
	}
	require.NotContains(t, found, `orders_phase_call_duration_seconds_count{from="started",operation="create_order",result="ok"}`)
	require.Contains(t, found, `orders_pool_connections{state="in_use"}`)
	require.Positive(t, found["orders_pool_acquires_total"])
}

// A client may send any method to any address. What it sends becomes no label.
func TestLabelsAreNotTheClients(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, method := range []string{"BREW", "STEEP", http.MethodGet} {
		for _, path := range []string{"/canary", "/v1/canary", "/v1/orders/canary", "/problems/canary"} {
			request, err := http.NewRequestWithContext(t.Context(), method, s.url+path, http.NoBody)
			require.NoError(t, err)
			response, err := s.client.Do(request)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
		}
	}
	require.Equal(t, http.StatusCreated, s.order("canary-canary-canary", tea))
	for name := range scrape(t, s.metrics) {
		require.NotContains(t, name, "canary")
		require.NotContains(t, name, "BREW")
		require.NotContains(t, name, s.account.String())
		require.NotContains(t, name, "ada@example.com")
	}
}

func TestPasses(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.metrics.Completed(idempotency.CompleterResult{Completed: 3, Skipped: 1, Failed: 2, NeedsReview: 1}, nil)
	s.metrics.Completed(idempotency.CompleterResult{Completed: 1}, errors.New("the database is away"))
	s.metrics.Reaped(50, nil)
	s.metrics.Receipt("sent", time.Second)
	found := scrape(t, s.metrics)
	require.Equal(t, map[string]int{"completed": 4, "busy": 1, "failed": 2, "needs_review": 1}, found.of("orders_completer_keys_total"))
	require.InDelta(t, 1, found[`orders_passes_total{command="completer",result="ok"}`], 0)
	require.InDelta(t, 1, found[`orders_passes_total{command="completer",result="failed"}`], 0)
	require.InDelta(t, 1, found[`orders_passes_total{command="reaper",result="ok"}`], 0)
	require.InDelta(t, 50, found["orders_reaper_keys_deleted_total"], 0)
	require.Positive(t, found[`orders_last_pass_timestamp_seconds{command="reaper"}`])
	require.InDelta(t, 1, found[`orders_receipt_duration_seconds_count{outcome="sent"}`], 0)
}

// An order is observed a dozen times. It must not cost what it measures.
func TestObservingIsCheap(t *testing.T) {
	// Not parallel: allocations are counted for the whole process.
	s := newShop(t)
	observer := s.metrics.API()
	for name, observe := range map[string]func(){
		"an answer": func() {
			observer.Answered(api.Answered{Method: http.MethodPost, Route: "/v1/orders", Status: http.StatusCreated, Took: time.Second, Outcome: "created"})
		},
		"a phase": func() {
			s.metrics.Phase(idempotency.Phase{Operation: "create_order", From: "order_created", Call: time.Second, Record: time.Second})
		},
		"a call": func() { s.metrics.ProviderAttempt(payments.Attempt{Call: "create", Took: time.Second}) },
	} {
		require.LessOrEqual(t, testing.AllocsPerRun(100, observe), 1.0, name)
	}
}

// Names and units are as Prometheus wants them.
func TestNames(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	require.Equal(t, http.StatusCreated, s.order("an-order-of-teas-01", tea))
	s.metrics.Completed(idempotency.CompleterResult{Completed: 1}, nil)
	s.metrics.Reaped(1, nil)
	s.metrics.Receipt("sent", time.Second)
	s.metrics.API().Finished("created")
	w := httptest.NewRecorder()
	s.metrics.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	problems, err := promlint.New(w.Body).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
}
