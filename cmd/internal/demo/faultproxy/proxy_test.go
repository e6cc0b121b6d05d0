package faultproxy_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/cmd/internal/demo/faultproxy"
	"example.com/orders-api/payments/stripetest"
)

type fixture struct {
	*faultproxy.Proxy
	stripe   *stripetest.Server
	provider string
	client   *http.Client
}

func newFixture(t *testing.T, options faultproxy.Options) fixture {
	t.Helper()
	stripe := stripetest.New(stripetest.Options{})
	provider := httptest.NewServer(stripe)
	t.Cleanup(provider.Close)
	t.Cleanup(stripe.Close)
	options.Provider = provider.URL
	proxy, err := faultproxy.New(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	// One connection for each request: net/http retries on a reused one by itself.
	return fixture{Proxy: proxy, stripe: stripe, provider: provider.URL, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

func (f fixture) post(ctx context.Context, path string, form url.Values) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.URL()+path, strings.NewReader(form.Encode()))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Authorization", "Bearer sk_test_proxy")
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := f.client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

func (f fixture) intent(t *testing.T, card string) string {
	t.Helper()
	status, body, err := f.post(t.Context(), "/v1/payment_intents", url.Values{
		"amount": {"2500"}, "currency": {"usd"}, "payment_method": {card}, "metadata[order_id]": {"1"},
		"automatic_payment_methods[enabled]": {"true"}, "automatic_payment_methods[allow_redirects]": {"never"},
	})
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, body)
	_, id, _ := strings.Cut(body, `"id":`)
	return "/v1/payment_intents/" + strings.Split(id, `"`)[1]
}

func requireDropped(t *testing.T, status int, dropped <-chan int) {
	t.Helper()
	select {
	case got := <-dropped:
		require.Equal(t, status, got)
	case <-time.After(30 * time.Second):
		require.Fail(t, "no response was dropped")
	}
}

func TestProxy_dropResponseAfterConfirm(t *testing.T) {
	t.Parallel()
	f := newFixture(t, faultproxy.Options{})
	dropped := f.DropResponseAfterConfirm()
	confirm := f.intent(t, "pm_card_visa") + "/confirm" // other calls are still forwarded
	require.Empty(t, dropped)

	_, _, err := f.post(t.Context(), confirm, nil)
	require.Error(t, err)
	requireDropped(t, http.StatusOK, dropped)
	require.Len(t, f.stripe.Charges(), 1)

	seen := len(f.stripe.Requests())
	_, _, err = f.post(t.Context(), confirm, nil)
	require.Error(t, err, "no call is forwarded until Restore")
	require.Len(t, f.stripe.Requests(), seen, "the provider gets no call")

	f.Restore()
	status, body, err := f.post(t.Context(), f.intent(t, "pm_card_visa")+"/confirm", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, body)
	require.Len(t, f.stripe.Charges(), 2)
}

func TestProxy_dropResponseAfterConfirm_clientGone(t *testing.T) {
	t.Parallel()
	f := newFixture(t, faultproxy.Options{})
	confirm := f.intent(t, "pm_card_visa") + "/confirm"
	dropped := f.DropResponseAfterConfirm()
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.provider+confirm, nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer sk_test_proxy")
	cancel()
	_, err = f.RoundTrip(request) //nolint:bodyclose // there is no response
	require.Error(t, err)
	requireDropped(t, http.StatusOK, dropped)
	require.Len(t, f.stripe.Charges(), 1)
}

func TestProxy_dropResponseAfterConfirm_declined(t *testing.T) {
	t.Parallel()
	f := newFixture(t, faultproxy.Options{})
	dropped := f.DropResponseAfterConfirm()
	_, _, err := f.post(t.Context(), f.intent(t, "pm_card_visa_chargeDeclined")+"/confirm", nil)
	require.Error(t, err, "a declined confirm loses its response too")
	requireDropped(t, http.StatusPaymentRequired, dropped)
	require.Empty(t, f.stripe.Charges())
}

func TestNew_invalidURL(t *testing.T) {
	t.Parallel()
	_, err := faultproxy.New(t.Context(), faultproxy.Options{Provider: "http://user:canary@host\x7f"})
	require.EqualError(t, err, "STRIPE_API_BASE is not a URL")
}

func TestProxy_reportsCalls(t *testing.T) {
	t.Parallel()
	reported := make(chan faultproxy.Call, 10)
	const latency = 30 * time.Millisecond
	f := newFixture(t, faultproxy.Options{Latency: latency, OnCall: func(c faultproxy.Call) { reported <- c }})
	path := f.intent(t, "pm_card_visa")
	arrived, ended := <-reported, <-reported
	require.Equal(t, faultproxy.Call{Number: 1, Method: "POST", Path: "/v1/payment_intents", ArrivedAt: arrived.ArrivedAt}, arrived)
	require.GreaterOrEqual(t, ended.Duration, latency)
	require.Equal(t, faultproxy.Call{Number: 1, Method: "POST", Path: "/v1/payment_intents", ArrivedAt: arrived.ArrivedAt, Duration: ended.Duration, Status: 200}, ended)

	dropped := f.DropResponseAfterConfirm()
	_, _, err := f.post(t.Context(), path+"/confirm", nil)
	require.Error(t, err)
	requireDropped(t, http.StatusOK, dropped)
	<-reported
	ended = <-reported
	require.True(t, ended.Dropped)
	require.Equal(t, http.StatusOK, ended.Status)

	_, _, err = f.post(t.Context(), path+"/confirm", nil)
	require.Error(t, err)
	<-reported
	ended = <-reported
	require.True(t, ended.Dropped)
	require.Zero(t, ended.Status, "the provider was not reached")
}
