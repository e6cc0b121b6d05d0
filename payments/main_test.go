package payments_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/payments"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	canary       = "CaNaRy"
	secretKey    = "sk_test_" + canary
	clientSecret = "pi_1_secret_" + canary

	createKey  = "orders-api-7b0f"
	confirmKey = "orders-api-7b0f-confirm"
)

var createParams = payments.CreateParams{
	Amount:        2500,
	Currency:      "eur",
	PaymentMethod: "pm_card_visa",
	Description:   "Order 7b0f",
	Metadata:      map[string]string{"order_id": "7b0f", "idempotency_key_id": "k1"},
}

// intent is Stripe's JSON of the intent of createParams.
func intent(status string) string {
	return fmt.Sprintf(`{"id":"pi_1","object":"payment_intent","status":%q,"amount":2500,"currency":"eur",`+
		`"amount_received":0,"client_secret":%q,"created":1760000000,"latest_charge":null,"receipt_email":"%s@example.com",`+
		`"metadata":{"order_id":"7b0f","idempotency_key_id":"k1"}}`, status, clientSecret, canary)
}

type response struct {
	status int
	body   string
	header http.Header
}

type request struct {
	method, path string
	header       http.Header
	form         url.Values // of the body, or the query of a GET
}

// provider sends the given responses in order, and then repeats the last one.
type provider struct {
	url      string
	mu       sync.Mutex
	requests []request
}

func startProvider(t *testing.T, responses ...response) *provider {
	t.Helper()
	p := &provider{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		p.mu.Lock()
		n := len(p.requests)
		p.requests = append(p.requests, request{r.Method, r.URL.Path, r.Header, r.Form})
		p.mu.Unlock()
		next := responses[min(n, len(responses)-1)]
		w.Header().Set("Request-Id", "req_1")
		for name, values := range next.header {
			w.Header()[name] = values
		}
		w.WriteHeader(next.status)
		_, _ = w.Write([]byte(next.body))
	}))
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

func (p *provider) seen() []request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

type buffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// newClient returns a client that does not wait before retries. Its log must not
// contain a secret.
func newClient(t *testing.T, baseURL string, change ...func(*payments.Config)) *payments.Client {
	t.Helper()
	log := &buffer{}
	cfg := payments.Config{
		SecretKey: secretKey,
		BaseURL:   baseURL,
		Timeout:   20 * time.Second,
		Logger:    slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range change {
		f(&cfg)
	}
	client, err := payments.New(cfg)
	require.NoError(t, err)
	client.SetSleep(func(ctx context.Context, _ time.Duration) error { return ctx.Err() })
	t.Cleanup(func() {
		client.Close()
		require.NotContains(t, log.String(), canary)
	})
	return client
}

func confirmFailure(t *testing.T, client *payments.Client) *payments.Error {
	t.Helper()
	_, err := client.Confirm(t.Context(), confirmKey, "pi_1", true)
	return failure(t, err)
}

// failure returns err as a [payments.Error], and checks that it prints no secret.
func failure(t *testing.T, err error) *payments.Error {
	t.Helper()
	var e *payments.Error
	require.ErrorAs(t, err, &e)
	for _, verb := range []string{"%v", "%+v", "%#v", "%q"} {
		require.NotContains(t, fmt.Sprintf(verb, e), canary)
		require.NotContains(t, fmt.Sprintf(verb, e.Unwrap()), canary)
	}
	if e.Intent != nil {
		require.NotContains(t, fmt.Sprintf("%+v", *e.Intent), canary)
	}
	return e
}
