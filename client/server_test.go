package client_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/client"
)

// fixture is a client of a server with scripted responses. Delays take no time.
type fixture struct {
	*client.Client

	mu       sync.Mutex
	script   []http.HandlerFunc // one for each request; the last one is repeated
	requests []request
	delays   []time.Duration
	observed []client.Attempt
}

type request struct {
	method, uri string
	header      http.Header
	body        string
}

func newFixture(t *testing.T, script ...http.HandlerFunc) *fixture {
	t.Helper()
	return newFixtureWith(t, func(*client.Config) {}, script...)
}

func newFixtureWith(t *testing.T, change func(*client.Config), script ...http.HandlerFunc) *fixture {
	t.Helper()
	f := &fixture{script: script}
	server := httptest.NewServer(f)
	config := client.Config{
		BaseURL: server.URL,
		APIKey:  "api-key",
		Observe: func(e client.Attempt) { f.observed = append(f.observed, e) },
	}
	change(&config)
	var err error
	f.Client, err = client.New(config)
	require.NoError(t, err)
	f.SetSleep(func(ctx context.Context, d time.Duration) error {
		f.delays = append(f.delays, d)
		return ctx.Err()
	})
	t.Cleanup(func() {
		f.Close()
		server.Close()
	})
	return f
}

func (f *fixture) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.requests = append(f.requests, request{r.Method, r.RequestURI, r.Header, string(body)})
	respond := f.script[min(len(f.requests), len(f.script))-1]
	f.mu.Unlock()
	respond(w, r)
}

func (f *fixture) received() []request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

// respond sends a response. lines are pairs of a header's name and value.
func respond(status int, contentType, body string, lines ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		for i := 0; i < len(lines); i += 2 {
			w.Header().Set(lines[i], lines[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

const (
	jsonType    = "application/json"
	problemType = "application/problem+json"
)

func respondCreated(lines ...string) http.HandlerFunc {
	return respond(http.StatusCreated, jsonType, `{"id":"o1","status":"paid","amount":2500,"currency":"usd","items":[],"tomorrow":true}`, lines...)
}

func respondProblem(status int, slug, retry string, lines ...string) http.HandlerFunc {
	return respond(status, problemType,
		`{"type":"/problems/`+slug+`","title":"T","status":`+strconv.Itoa(status)+`,"detail":"D.","retry":"`+retry+`","request_id":"r1"}`, lines...)
}

var declined = respond(http.StatusPaymentRequired, problemType, `{"type":"/problems/payment-declined","title":"T","status":402,"detail":"D.",
	"retry":"new-key","outcome":"final","code":"card_declined","decline_code":"insufficient_funds","order_id":"o1"}`)

func closeConnection(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func truncate(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", jsonType)
	w.Header().Set("Content-Length", "1000")
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, `{"id":"o1"}`)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

const key client.Key = "2f1cdb0e-8a0f-4b0e-9d3c-6f6a2f3f9f10"

func orderParams() client.OrderParams {
	return client.OrderParams{
		Email:         "ada@example.com",
		Currency:      "usd",
		PaymentMethod: "pm_card_visa",
		Items:         []client.Item{{SKU: "tea", Description: "Green tea", Quantity: 2, UnitAmount: 1250}},
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
