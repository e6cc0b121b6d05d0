package livecheck

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// FuzzStripeResponse checks that every response to a confirm has a valid outcome, and
// that a success is complete.
func FuzzStripeResponse(f *testing.F) {
	const (
		paid = `{"id":"pi_1","object":"payment_intent","status":"succeeded","amount":2500,"currency":"eur","amount_received":2500,` +
			`"client_secret":"pi_1_secret_CaNaRy","created":1760000000,"latest_charge":"ch_1","metadata":{"order_id":"7b0f","idempotency_key_id":"k1"}}`
		failed  = `{"error":{"type":"%s","code":"%s","message":"x"}}`
		invalid = "invalid_request_error"
	)
	unpaid := strings.Replace(paid, "succeeded", "requires_payment_method", 1)
	for _, response := range []struct {
		status     int
		retryAfter string
		body       string
	}{
		{200, "", paid},
		{200, "", paid[:len(paid)-50]},
		{200, "", strings.ReplaceAll(paid, ":2500", `:"2500"`)},
		{200, "", `"pi_1"`},
		{200, "", `{"object":"list","url":"/v1/payment_intents","has_more":false,"data":[` + strings.Replace(paid, "succeeded", "canceled", 1) + `]}`},
		{200, "", `{"object":"list","has_more":true,"data":[null]}`},
		{200, "", `{"object":"list","has_more":true,"data":[]}`},
		{307, "", paid},
		{400, "", fmt.Sprintf(failed, "idempotency_error", "")},
		{400, "", fmt.Sprintf(failed, invalid, "payment_intent_unexpected_state")},
		{400, "", `{"error":{"type":"invalid_request_error","code":"resource_missing","param":"payment_method","message":"No such PaymentMethod: 'pm_x'"}}`},
		{401, "", `{"error":{"type":"invalid_request_error","message":"Invalid API Key provided: sk_test_CaNaRy"}}`},
		{402, "", `{"error":{"type":"card_error","code":"card_declined","decline_code":"generic_decline","message":"Your card was declined.","charge":"ch_1","payment_intent":` + unpaid + `}}`},
		{402, "", `{"error":{"type":"card_error","code":"card_declined","payment_intent":` + paid + `}}`},
		{402, "", `{"error":{"type":"card_error","payment_intent":"}}`},
		{402, "", `{"error":null}`},
		{409, "", fmt.Sprintf(failed, invalid, "idempotency_key_in_use")},
		{429, "99999999999999999999", fmt.Sprintf(failed, invalid, "rate_limit")},
		{500, "", fmt.Sprintf(failed, "api_error", "")},
		{502, "3", "<html>pi_1_secret_CaNaRy</html>"},
	} {
		f.Add(uint16(response.status-200), response.retryAfter, []byte(response.body))
	}
	f.Fuzz(func(t *testing.T, status uint16, retryAfter string, body []byte) {
		code := 200 + int(status)%400
		synctest.Test(t, func(t *testing.T) { // Retry-After takes no time
			client := payments.New(payments.Config{
				SecretKey: "sk_test_fuzz",
				Timeout:   20 * time.Second,
				Logger:    slog.New(slog.DiscardHandler),
				Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
					header := http.Header{"Retry-After": {retryAfter}}
					return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
				}),
			})
			confirmed, err := client.Confirm(t.Context(), "confirm", "pi_1", true)
			if err == nil {
				require.Equal(t, 200, code)
				require.Equal(t, "pi_1", confirmed.ID)
				require.NotEmpty(t, confirmed.Status)
				require.Positive(t, confirmed.Amount)
				require.NotEmpty(t, confirmed.Currency)
				return
			}
			e, ok := errors.AsType[*payments.Error](err)
			require.True(t, ok)
			require.Equal(t, code, e.HTTPStatus)
			require.True(t, e.Outcome != payments.Declined || slices.Contains([]int{400, 402, 429}, code))
			require.True(t, e.Outcome != payments.Refused || code == 400 || code == 402)
			require.True(t, e.Outcome != payments.NotExecuted || slices.Contains([]int{400, 401, 403, 404, 429}, code))
			final := e.Outcome == payments.Declined || e.Outcome == payments.Refused
			require.True(t, e.Message == "" || final || e.NeedsOperator)
			require.NotContains(t, e.Error()+e.Message, "_secret_")
		})
	})
}
