package payments_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/payments"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	canary        = "CaNaRy" // in all secrets
	secretKey     = "sk_test_" + canary
	clientSecret  = "pi_1_secret_" + canary
	webhookSecret = "whsec_" + canary

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
	call   string // method and path
	header http.Header
	form   url.Values // of the body, or the query of a GET
}

type provider struct {
	responses []response
	mu        sync.Mutex
	requests  []request
}

func respond(responses ...response) *provider { return &provider{responses: responses} }

func (p *provider) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.ParseForm(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.responses[min(len(p.requests), len(p.responses)-1)]
	p.requests = append(p.requests, request{r.Method + " " + r.URL.Path, r.Header, r.Form})
	header := http.Header{"Request-Id": {"req_1"}}
	for name, values := range next.header {
		header[name] = values
	}
	return &http.Response{StatusCode: next.status, Header: header, Body: io.NopCloser(strings.NewReader(next.body)), Request: r}, nil
}

func (p *provider) seen() []request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

// newClient returns a client whose log must not contain a secret.
func newClient(t *testing.T, transport http.RoundTripper, change ...func(*payments.Config)) *payments.Client {
	t.Helper()
	var log bytes.Buffer
	cfg := payments.Config{
		SecretKey: secretKey,
		BaseURL:   "http://stripe.invalid",
		Timeout:   20 * time.Second,
		Logger:    slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Transport: transport,
		Backoff:   time.Microsecond,
		Observe:   func(made payments.HTTPAttempt) { require.Contains(t, payments.Calls(), made.Call) },
	}
	for _, f := range change {
		f(&cfg)
	}
	client := payments.New(cfg)
	t.Cleanup(func() {
		client.Close()
		require.NotContains(t, log.String(), canary)
	})
	return client
}

func at(url string) func(*payments.Config) {
	return func(c *payments.Config) { c.BaseURL = url }
}

func confirm(t *testing.T, client *payments.Client) (payments.Intent, error) {
	t.Helper()
	return client.Confirm(t.Context(), confirmKey, "pi_1", true)
}

func confirmFailure(t *testing.T, client *payments.Client) *payments.Error {
	t.Helper()
	_, err := confirm(t, client)
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
