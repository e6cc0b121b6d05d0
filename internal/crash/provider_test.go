package crash_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

// The provider's endpoints that the flows use, as the boundaries are named.
const (
	createIntent  = "POST /v1/payment_intents"
	confirmIntent = "POST /v1/payment_intents/{id}/confirm"
	cancelIntent  = "POST /v1/payment_intents/{id}/cancel"
	readIntent    = "GET /v1/payment_intents/{id}"
	listIntents   = "GET /v1/payment_intents"
	createRefund  = "POST /v1/refunds"
	readRefund    = "GET /v1/refunds/{id}"
	listRefunds   = "GET /v1/refunds"
)

// front stands between one child and the stand-in for Stripe. Each call is a
// boundary: before it the stand-in has not seen the request, after it the child
// has not heard the answer.
type front struct {
	border *border
	stripe *stripetest.Server
	routes *http.ServeMux                  // names the endpoints
	arrive func(context.Context) time.Time // looks around when a request arrives, and tells the time

	mu    sync.Mutex
	calls map[string]call // by the provider's id of the request
}

// call is what only the front knows of a request.
type call struct {
	at    time.Time // by the database's clock
	heard bool      // the answer reached the child
}

// newFront starts a front, which ends with the test, and returns its URL.
func newFront(t testing.TB, b *border, stripe *stripetest.Server, arrive func(context.Context) time.Time) (*front, string) {
	t.Helper()
	f := &front{border: b, stripe: stripe, routes: http.NewServeMux(), arrive: arrive, calls: map[string]call{}}
	for _, pattern := range []string{
		createIntent, confirmIntent, cancelIntent, readIntent, listIntents, createRefund, readRefund, listRefunds,
	} {
		f.routes.Handle(pattern, http.NotFoundHandler())
	}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return f, server.URL
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The stand-in goes on with what has arrived, whoever has left meanwhile.
	ctx := context.WithoutCancel(r.Context())
	at := f.arrive(ctx)
	_, name := f.routes.Handler(r)
	exchange := f.border.begin(provider, name)
	body, err := io.ReadAll(r.Body)
	if err != nil || !exchange.pass(before) {
		panic(http.ErrAbortHandler)
	}
	request := r.Clone(ctx)
	request.Body = io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	f.stripe.ServeHTTP(answer, request)
	heard := exchange.pass(after)
	f.mu.Lock()
	f.calls[answer.Header().Get("Request-Id")] = call{at, heard}
	f.mu.Unlock()
	if !heard {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// call returns what the front knows of a request.
func (f *front) call(requestID string) (call, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, known := f.calls[requestID]
	return c, known
}

// intent is a payment as the provider has it.
type intent struct {
	ID       string            `json:"id"`
	Amount   int64             `json:"amount"`
	Currency string            `json:"currency"`
	Status   string            `json:"status"`
	Metadata map[string]string `json:"metadata"`
}

// spendable makes a payment method that is fit for one use, and a function that
// uses it. No money moves.
func (s *shop) spendable() (card string, spend func()) {
	s.t.Helper()
	var other struct {
		ID            string `json:"id"`
		PaymentMethod string `json:"payment_method"`
	}
	s.atProvider(http.MethodPost, "/v1/payment_intents",
		"amount=100&currency=usd&payment_method_types[0]=card&payment_method="+declining, &other)
	require.NotEmpty(s.t, other.PaymentMethod)
	return other.PaymentMethod, func() {
		s.atProvider(http.MethodPost, "/v1/payment_intents/"+other.ID+"/confirm", "", &struct{}{})
	}
}

// intents are all payments in the provider's ledger.
func (s *shop) intents() []intent {
	s.t.Helper()
	var list struct {
		Data []intent `json:"data"`
	}
	s.atProvider(http.MethodGet, "/v1/payment_intents?limit=100", "", &list)
	return list.Data
}

// atProvider asks the stand-in for something, past all fronts.
func (s *shop) atProvider(method, path, form string, object any) {
	s.t.Helper()
	request := httptest.NewRequest(method, path, strings.NewReader(form))
	request.Header.Set("Authorization", "Bearer sk_test_crash")
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer := httptest.NewRecorder()
	s.stripe.ServeHTTP(answer, request)
	require.NoError(s.t, json.NewDecoder(answer.Body).Decode(object))
}
