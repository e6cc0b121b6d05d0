package tour

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

	"example.com/orders-api/payments/stripetest"
)

// line is a wire to a stand-in, and a client at its other end.
type line struct {
	*wire
	stripe *stripetest.Server
	client *http.Client
}

func newLine(t *testing.T) line {
	t.Helper()
	stripe := stripetest.New(stripetest.Options{})
	provider := httptest.NewServer(stripe)
	t.Cleanup(provider.Close)
	t.Cleanup(stripe.Close)
	w, err := newWire(t.Context(), provider.URL)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.close()) })
	// One request each, because net/http sends a lost one again by itself.
	return line{wire: w, stripe: stripe, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

// post returns the answer's status and body, or an error when there is none.
func (l line) post(ctx context.Context, path string, form url.Values) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+path, strings.NewReader(form.Encode()))
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

func requireCharged(t *testing.T, charged <-chan struct{}) {
	t.Helper()
	select {
	case <-charged:
	case <-time.After(30 * time.Second):
		require.Fail(t, "nothing was charged")
	}
}

func requireNotCharged(t *testing.T, charged <-chan struct{}) {
	t.Helper()
	select {
	case <-charged:
		require.Fail(t, "something was charged")
	default:
	}
}

func TestWire_passesEverythingOn(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	status, body, err := l.post(t.Context(), l.intent(t, "pm_card_visa")+"/confirm", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, body)
	require.Len(t, l.stripe.Charges(), 1)
}

func TestWire_cutAfterChargeLosesTheAnswerAndNothingElse(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	charged := l.cutAfterCharge()
	confirm := l.intent(t, "pm_card_visa") + "/confirm" // all that is no confirm still passes
	requireNotCharged(t, charged)

	_, _, err := l.post(t.Context(), confirm, nil)
	require.Error(t, err)
	requireCharged(t, charged)
	require.Len(t, l.stripe.Charges(), 1)

	seen := len(l.stripe.Requests())
	_, _, err = l.post(t.Context(), confirm, nil)
	require.Error(t, err, "the line stays down")
	require.Len(t, l.stripe.Requests(), seen, "and nothing reaches the provider")

	l.mend()
	status, body, err := l.post(t.Context(), l.intent(t, "pm_card_visa")+"/confirm", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, body)
	require.Len(t, l.stripe.Charges(), 2)
}

func TestWire_chargesThoughTheClientIsGone(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	confirm := l.intent(t, "pm_card_visa") + "/confirm"
	charged := l.cutAfterCharge()
	ctx, hangUp := context.WithCancel(t.Context())
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, confirm, nil)
	request.Header.Set("Authorization", "Bearer sk_test_wire")
	hangUp()
	require.PanicsWithValue(t, http.ErrAbortHandler, func() { l.ServeHTTP(httptest.NewRecorder(), request) })
	requireCharged(t, charged)
	require.Len(t, l.stripe.Charges(), 1)
}

func TestWire_aRefusedConfirmIsNoCharge(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	charged := l.cutAfterCharge()
	_, _, err := l.post(t.Context(), l.intent(t, "pm_card_visa_chargeDeclined")+"/confirm", nil)
	require.Error(t, err, "the answer is lost all the same")
	requireNotCharged(t, charged)
	require.Empty(t, l.stripe.Charges())
}

func TestWire_needsAURL(t *testing.T) {
	t.Parallel()
	_, err := newWire(t.Context(), "http://user:canary@host\x7f")
	require.EqualError(t, err, "demo: STRIPE_API_BASE is not a URL")
}
