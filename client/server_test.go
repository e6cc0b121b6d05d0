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

	"example.com/orders-api/client"
)

// bench is a client of a server that plays a script, in a world where waiting
// takes no time.
type bench struct {
	*client.Client
	url string

	mu       sync.Mutex
	script   []http.HandlerFunc // one for each request; the last one stays
	requests []request
	waits    []time.Duration
	observed []client.Attempt
}

// request is one that arrived.
type request struct {
	method, uri string
	header      http.Header
	body        string
}

func newBench(t *testing.T, script ...http.HandlerFunc) *bench {
	t.Helper()
	return newBenchWith(t, func(*client.Config) {}, script...)
}

func newBenchWith(t *testing.T, change func(*client.Config), script ...http.HandlerFunc) *bench {
	t.Helper()
	b := &bench{script: script}
	server := httptest.NewServer(b)
	b.url = server.URL
	config := client.Config{
		BaseURL: server.URL,
		APIKey:  "key-of-the-account",
		Observe: func(e client.Attempt) { b.observed = append(b.observed, e) },
		Sleep: func(ctx context.Context, d time.Duration) error {
			b.waits = append(b.waits, d)
			return ctx.Err()
		},
		Random: func(time.Duration) time.Duration { return 0 },
	}
	change(&config)
	var err error
	b.Client, err = client.New(config)
	require.NoError(t, err)
	t.Cleanup(func() {
		b.Close()
		server.Close()
	})
	return b
}

func (b *bench) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	b.mu.Lock()
	b.requests = append(b.requests, request{r.Method, r.RequestURI, r.Header, string(body)})
	answer := b.script[min(len(b.requests), len(b.script))-1]
	b.mu.Unlock()
	answer(w, r)
}

// sent returns what has arrived so far.
func (b *bench) sent() []request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.requests)
}

// answer plays an answer with header lines in pairs of name and value.
func answer(status int, contentType, body string, lines ...string) http.HandlerFunc {
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

// created is the answer to a purchase that went well.
func created(lines ...string) http.HandlerFunc {
	return answer(http.StatusCreated, jsonType, `{"id":"o1","status":"paid","amount":2500,"currency":"usd","items":[],"tomorrow":true}`, lines...)
}

// refused is a problem.
func refused(status int, slug, retry string, lines ...string) http.HandlerFunc {
	return answer(status, problemType,
		`{"type":"/problems/`+slug+`","title":"T","status":`+strconv.Itoa(status)+`,"detail":"D.","retry":"`+retry+`","request_id":"r1"}`, lines...)
}

// declined is a problem that is the key's last word.
var declined = answer(http.StatusPaymentRequired, problemType, `{"type":"/problems/payment-declined","title":"T","status":402,"detail":"D.",
	"retry":"new-key","outcome":"final","code":"card_declined","decline_code":"insufficient_funds","order_id":"o1"}`)

// hangUp closes the connection without an answer.
func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// cut closes it in the middle of a paid order.
func cut(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", jsonType)
	w.Header().Set("Content-Length", "1000")
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, `{"id":"o1"}`)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

const key client.Key = "2f1cdb0e-8a0f-4b0e-9d3c-6f6a2f3f9f10"

func tea() client.OrderParams {
	return client.OrderParams{
		Email:         "ada@example.com",
		Currency:      "usd",
		PaymentMethod: "pm_card_visa",
		Items:         []client.Item{{SKU: "tea", Description: "Green tea", Quantity: 2, UnitAmount: 1250}},
	}
}
