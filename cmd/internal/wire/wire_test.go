package wire_test

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

	"example.com/orders-api/cmd/internal/wire"
	"example.com/orders-api/payments/stripetest"
)

// line is a wire to a stand-in, and a client at its other end.
type line struct {
	*wire.Wire
	stripe *stripetest.Server
	client *http.Client
}

func newLine(t *testing.T, options wire.Options) line {
	t.Helper()
	stripe := stripetest.New(stripetest.Options{})
	provider := httptest.NewServer(stripe)
	t.Cleanup(provider.Close)
	t.Cleanup(stripe.Close)
	options.Provider = provider.URL
	w, err := wire.New(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	// One request each, because net/http sends a lost one again by itself.
	return line{Wire: w, stripe: stripe, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

// post returns the answer's status and body, or an error when there is none.
func (l line) post(ctx context.Context, path string, form url.Values) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.URL()+path, strings.NewReader(form.Encode()))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Authorization", "Bearer sk_test_wire")
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := l.client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// intent creates an unconfirmed PaymentIntent and returns its path.
func (l line) intent(t *testing.T, card string) string {
	t.Helper()
	status, body, err := l.post(t.Context(), "/v1/payment_intents", url.Values{
		"amount": {"2500"}, "currency": {"usd"}, "payment_method": {card}, "metadata[order_id]": {"1"},
		"automatic_payment_methods[enabled]": {"true"}, "automatic_payment_methods[allow_redirects]": {"never"},
	})
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, body)
	_, id, _ := strings.Cut(body, `"id":`)
	return "/v1/payment_intents/" + strings.Split(id, `"`)[1]
}

// requireLost waits for the status of the answer that is lost.
func requireLost(t *testing.T, status int, lost <-chan int) {
	t.Helper()
	select {
	case got := <-lost:
		require.Equal(t, status, got)
	case <-time.After(30 * time.Second):
		require.Fail(t, "no answer was lost")
	}
}

func TestWire_passesEverythingOn(t *testing.T) {
	t.Parallel()
	l := newLine(t, wire.Options{})
	status, body, err := l.post(t.Context(), l.intent(t, "pm_card_visa")+"/confirm", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, body)
	require.Len(t, l.stripe.Charges(), 1)
}

func TestWire_cutAfterConfirmLosesTheAnswerAndNothingElse(t *testing.T) {
	t.Parallel()
	l := newLine(t, wire.Options{})
	lost := l.CutAfterConfirm()
	confirm := l.intent(t, "pm_card_visa") + "/confirm" // all that is no confirm still passes
	require.Empty(t, lost)

	_, _, err := l.post(t.Context(), confirm, nil)
	require.Error(t, err)
	requireLost(t, http.StatusOK, lost)
	require.Len(t, l.stripe.Charges(), 1)

	seen := len(l.stripe.Requests())
	_, _, err = l.post(t.Context(), confirm, nil)
	require.Error(t, err, "the line stays down")
	require.Len(t, l.stripe.Requests(), seen, "and nothing reaches the provider")

	l.Mend()
	status, body, err := l.post(t.Context(), l.intent(t, "pm_card_visa")+"/confirm", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, body)
	require.Len(t, l.stripe.Charges(), 2)
}

func TestWire_chargesThoughTheClientIsGone(t *testing.T) {
	t.Parallel()
	l := newLine(t, wire.Options{})
	confirm := l.intent(t, "pm_card_visa") + "/confirm"
	lost := l.CutAfterConfirm()
	ctx, hangUp := context.WithCancel(t.Context())
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, confirm, nil)
	request.Header.Set("Authorization", "Bearer sk_test_wire")
	hangUp()
	require.PanicsWithValue(t, http.ErrAbortHandler, func() { l.ServeHTTP(httptest.NewRecorder(), request) })
	requireLost(t, http.StatusOK, lost)
	require.Len(t, l.stripe.Charges(), 1)
}

func TestWire_aRefusedConfirmIsNoCharge(t *testing.T) {
	t.Parallel()
	l := newLine(t, wire.Options{})
	lost := l.CutAfterConfirm()
	_, _, err := l.post(t.Context(), l.intent(t, "pm_card_visa_chargeDeclined")+"/confirm", nil)
	require.Error(t, err, "the answer is lost all the same")
	requireLost(t, http.StatusPaymentRequired, lost)
	require.Empty(t, l.stripe.Charges())
}

func TestWire_needsAURL(t *testing.T) {
	t.Parallel()
	_, err := wire.New(t.Context(), wire.Options{Provider: "http://user:canary@host\x7f"})
	require.EqualError(t, err, "STRIPE_API_BASE is not a URL")
}

func TestWire_tellsWhatPasses(t *testing.T) {
	t.Parallel()
	told := make(chan wire.Call, 10)
	const delay = 30 * time.Millisecond
	l := newLine(t, wire.Options{Delay: delay, Observe: func(c wire.Call) { told <- c }})
	path := l.intent(t, "pm_card_visa")
	arrived, over := <-told, <-told
	require.Equal(t, wire.Call{Number: 1, Method: "POST", Path: "/v1/payment_intents", At: arrived.At, Lost: true}, arrived)
	require.GreaterOrEqual(t, over.Took, delay)
	require.Equal(t, wire.Call{Number: 1, Method: "POST", Path: "/v1/payment_intents", At: arrived.At, Took: over.Took, Status: 200}, over)

	lost := l.CutAfterConfirm()
	_, _, err := l.post(t.Context(), path+"/confirm", nil)
	require.Error(t, err)
	requireLost(t, http.StatusOK, lost)
	<-told
	over = <-told
	require.True(t, over.Lost)
	require.Equal(t, http.StatusOK, over.Status)

	_, _, err = l.post(t.Context(), path+"/confirm", nil)
	require.Error(t, err)
	<-told
	over = <-told
	require.True(t, over.Lost)
	require.Zero(t, over.Status, "the provider was not reached")
}
