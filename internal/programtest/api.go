package programtest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

// FakeStripe returns a fake Stripe and its URL.
func FakeStripe(t *testing.T) (*stripetest.Server, string) {
	t.Helper()
	stripe := stripetest.New(stripetest.Options{})
	server := httptest.NewServer(stripe)
	t.Cleanup(server.Close)
	t.Cleanup(stripe.Close) // before server.Close, which waits for held requests
	return stripe, server.URL
}

// API is a running API and an API key for it.
type API struct {
	*Process
	Base string
	Key  string
}

// Response is a response of the API.
type Response struct {
	Status int
	Header http.Header
	Body   string
}

// Do sends one request on a new connection.
func (a *API) Do(ctx context.Context, method, path, body string, header http.Header) (Response, error) {
	ctx, cancel := context.WithTimeout(ctx, WaitTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, a.Base+path, strings.NewReader(body))
	if err != nil {
		return Response{}, err
	}
	request.Header = http.Header{"Authorization": {"Bearer " + a.Key}, "Content-Type": {"application/json"}}
	for name, values := range header {
		request.Header[name] = values
	}
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request) // it follows no redirect (R31, one call, one answer)
	if err != nil {
		return Response{}, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return Response{response.StatusCode, response.Header, string(content)}, err
}

// Order sends an order of [Tea].
func (a *API) Order(ctx context.Context, idempotencyKey string) (Response, error) {
	return a.Do(ctx, http.MethodPost, "/v1/orders", Tea, http.Header{"Idempotency-Key": {idempotencyKey}})
}

// MustDo is [API.Do] that requires a response.
func (a *API) MustDo(method, path, body string, header http.Header) Response {
	a.T.Helper()
	response, err := a.Do(context.Background(), method, path, body, header)
	require.NoError(a.T, err)
	return response
}

// MustOrder sends an order and requires a response.
func (a *API) MustOrder(idempotencyKey, body string) Response {
	a.T.Helper()
	return a.MustDo(http.MethodPost, "/v1/orders", body, http.Header{"Idempotency-Key": {idempotencyKey}})
}

type orderResult struct {
	Response
	Err error
}

// OrderAsync sends an order of [Tea] in the background.
func (a *API) OrderAsync(idempotencyKey string, prefer ...string) <-chan orderResult {
	done := make(chan orderResult, 1)
	go func() {
		response, err := a.Do(context.Background(), http.MethodPost, "/v1/orders", Tea, http.Header{"Idempotency-Key": {idempotencyKey}, "Prefer": prefer})
		done <- orderResult{response, err}
	}()
	return done
}

// Ready returns the status of /readyz, or 0.
func (a *API) Ready() int {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	response, err := a.Do(ctx, http.MethodGet, "/readyz", "", nil)
	if err != nil {
		return 0
	}
	return response.Status
}

// Tea is the body of an order of 25.00.
const Tea = `{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa",` +
	`"items":[{"sku":"tea","description":"Green tea","quantity":2,"unit_amount":1250}]}`

// RequirePaid requires the response of a paid order of [Tea], and returns its id.
func RequirePaid(t *testing.T, a Response) string {
	t.Helper()
	require.Equal(t, http.StatusCreated, a.Status, a.Body)
	var order struct {
		ID     uuid.UUID `json:"id"`
		Status string    `json:"status"`
		Amount int64     `json:"amount"`
	}
	require.NoError(t, json.Unmarshal([]byte(a.Body), &order))
	require.Equal(t, "paid", order.Status)
	require.EqualValues(t, 2500, order.Amount)
	return order.ID.String()
}

// Accepted sends an order of [Tea] that a 202 answers.
func (a *API) Accepted(idempotencyKey string) {
	a.T.Helper()
	got := a.MustDo(http.MethodPost, "/v1/orders", Tea, http.Header{"Idempotency-Key": {idempotencyKey}, "Prefer": {"respond-async"}})
	require.Equal(a.T, http.StatusAccepted, got.Status, got.Body)
}

// Admin returns the URL of the admin listener.
func (p *Process) Admin() string {
	p.T.Helper()
	return "http://" + p.WaitFor(&p.Stderr, `serving metrics.*\baddress"?[=:]"?([0-9.]+:[0-9]+)`)[1]
}

// Get returns the status and body of a GET.
func Get(t *testing.T, url string) (int, string) {
	t.Helper()
	return GetAs(t, "", url)
}

// GetAs is [Get] with a Host header.
func GetAs(t *testing.T, host, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	request.Host = host
	client := http.Client{Timeout: WaitTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// RequireStartupError checks that a command prints the reasons and no secret.
func RequireStartupError(t *testing.T, environ []string, command string, reasons ...string) {
	t.Helper()
	p := Start(t, environ, strings.Fields(command)...)
	require.Equal(t, 1, p.Wait())
	require.Regexp(t, `(?m)^(orders|playground): `, p.Stderr.String())
	for _, reason := range reasons {
		require.Contains(t, p.Stderr.String(), reason)
	}
	require.NotContains(t, p.Stderr.String()+p.Stdout.String(), "canary")
	if strings.HasPrefix(command, "run") {
		p.RequireNoProcessLeft()
	}
}

// ListIntents returns the provider's list of intents.
func ListIntents(t *testing.T, provider, apiKey string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, provider+"/v1/payment_intents?limit=100", nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+apiKey)
	response, err := new(http.Client).Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(body)
}
