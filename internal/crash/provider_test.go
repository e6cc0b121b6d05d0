package crash_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

// The provider's endpoints, as the boundaries are named.
const (
	createIntent  = "POST /v1/payment_intents"
	confirmIntent = "POST /v1/payment_intents/{id}/confirm"
	cancelIntent  = "POST /v1/payment_intents/{id}/cancel"
	readIntent    = "GET /v1/payment_intents/{id}"
	listIntents   = "GET /v1/payment_intents"
	searchIntents = "GET /v1/payment_intents/search"
	createRefund  = "POST /v1/refunds"
	readRefund    = "GET /v1/refunds/{id}"
	listRefunds   = "GET /v1/refunds"
	listEvents    = "GET /v1/events"
	listDisputes  = "GET /v1/disputes"
)

// providerProxy is a reverse proxy between one child and the fake Stripe.
type providerProxy struct {
	interceptor *interceptor
	stripe      *stripetest.Server
	routes      *http.ServeMux                  // names the endpoints
	onArrival   func(context.Context) time.Time // called for each request; returns the time
	noSearch    bool                            // not every account has it
	started     time.Time

	mu    sync.Mutex
	calls map[string]call // by the provider's id of the request
}

type call struct {
	at        time.Time // by the database's clock
	delivered bool      // the response reached the child
}

func newProviderProxy(
	t testing.TB, i *interceptor, stripe *stripetest.Server, onArrival func(context.Context) time.Time, noSearch bool,
) (*providerProxy, string) {
	t.Helper()
	p := &providerProxy{
		interceptor: i, stripe: stripe, routes: http.NewServeMux(), onArrival: onArrival, noSearch: noSearch, started: time.Now(), calls: map[string]call{},
	}
	for _, pattern := range []string{
		createIntent, confirmIntent, cancelIntent, readIntent, listIntents, searchIntents, createRefund, readRefund, listRefunds, listEvents, listDisputes,
	} {
		p.routes.Handle(pattern, http.NotFoundHandler())
	}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	return p, server.URL
}

func (p *providerProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A process that starts tries its key, while it takes requests, with lists of what is newer than
	// itself, and reads its account. These are outside of the flow.
	since, _ := strconv.ParseInt(r.URL.Query().Get("created[gte]"), 10, 64)
	if since >= p.started.Unix() || r.URL.Path == "/v1/account" {
		p.stripe.ServeHTTP(w, r)
		return
	}
	// A request that has arrived is processed, even if its client has disconnected.
	ctx := context.WithoutCancel(r.Context())
	at := p.onArrival(ctx)
	_, name := p.routes.Handler(r)
	exchange := p.interceptor.begin(provider, name)
	body, err := io.ReadAll(r.Body)
	if err != nil || !exchange.proceed(before) {
		panic(http.ErrAbortHandler)
	}
	request := r.Clone(ctx)
	request.Body = io.NopCloser(bytes.NewReader(body))
	response := httptest.NewRecorder()
	if p.noSearch && name == searchIntents {
		http.NotFound(response, request)
	} else {
		p.stripe.ServeHTTP(response, request)
	}
	delivered := exchange.proceed(after)
	p.mu.Lock()
	p.calls[response.Header().Get("Request-Id")] = call{at, delivered}
	p.mu.Unlock()
	if !delivered {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), response.Header())
	w.WriteHeader(response.Code)
	_, _ = w.Write(response.Body.Bytes())
}

func (p *providerProxy) call(requestID string) (call, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, found := p.calls[requestID]
	return c, found
}

type intent struct {
	ID       string            `json:"id"`
	Amount   int64             `json:"amount"`
	Currency string            `json:"currency"`
	Status   string            `json:"status"`
	Metadata map[string]string `json:"metadata"`
}

// singleUseCard returns a payment method that can be used once, and a function that
// uses it without a charge.
func (h *harness) singleUseCard() (card string, use func()) {
	h.t.Helper()
	var other struct {
		ID            string `json:"id"`
		PaymentMethod string `json:"payment_method"`
	}
	h.callProvider(http.MethodPost, "/v1/payment_intents",
		"amount=100&currency=usd&payment_method_types[0]=card&payment_method="+declining, &other)
	require.NotEmpty(h.t, other.PaymentMethod)
	return other.PaymentMethod, func() {
		h.callProvider(http.MethodPost, "/v1/payment_intents/"+other.ID+"/confirm", "", &struct{}{})
	}
}

func (h *harness) intents() []intent {
	h.t.Helper()
	var list struct {
		Data []intent `json:"data"`
	}
	h.callProvider(http.MethodGet, "/v1/payment_intents?limit=100", "", &list)
	return list.Data
}

func (h *harness) callProvider(method, path, form string, object any) {
	h.t.Helper()
	request := httptest.NewRequest(method, path, strings.NewReader(form))
	request.Header.Set("Authorization", "Bearer sk_test_crash")
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response := httptest.NewRecorder()
	h.stripe.ServeHTTP(response, request)
	require.NoError(h.t, json.NewDecoder(response.Body).Decode(object))
}
