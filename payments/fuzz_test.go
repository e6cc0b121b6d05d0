package payments_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
)

// FuzzStripeResponse checks that every response has a valid outcome, and that a success
// is complete.
func FuzzStripeResponse(f *testing.F) {
	f.Fuzz(func(t *testing.T, status uint16, retryAfter string, body []byte) {
		code := 200 + int(status)%400
		client := newClient(t, "", func(cfg *payments.Config) {
			cfg.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
				return &http.Response{
					StatusCode: code,
					Header:     http.Header{"Retry-After": {retryAfter}},
					Body:       io.NopCloser(bytes.NewReader(body)),
					Request:    r,
				}, nil
			})
		})
		check := func(err error) {
			e := failure(t, err)
			require.Contains(t, []payments.Outcome{payments.Unknown, payments.NotExecuted, payments.Refused, payments.Declined}, e.Outcome)
			require.Equal(t, code, e.HTTPStatus)
			final := e.Outcome == payments.Declined || e.Outcome == payments.Refused
			require.Equal(t, final, e.RetryAfter == 0)
			require.LessOrEqual(t, e.RetryAfter, time.Hour)
			require.True(t, e.Outcome != payments.Declined || code == 402)
			require.True(t, e.Outcome != payments.Refused || code == 400)
			require.True(t, e.Outcome != payments.NotExecuted || slices.Contains([]int{401, 403, 404, 429}, code))
			require.True(t, !e.ReplayedError || code == 500)
			require.True(t, !e.UnexpectedState || code == 400)
			require.True(t, e.Message == "" || final)
			require.NotContains(t, e.Error()+e.Message, "_secret_")
		}

		created, err := client.Create(t.Context(), createKey, createParams)
		if err == nil {
			require.Equal(t, 200, code)
			require.NotEmpty(t, created.ID)
			require.Equal(t, createParams.Amount, created.Amount)
			require.Equal(t, createParams.Currency, created.Currency)
			require.Equal(t, createParams.Metadata, created.Metadata)
		} else {
			check(err)
		}

		confirmed, err := client.Confirm(t.Context(), confirmKey, "pi_1", true)
		if err == nil {
			require.Equal(t, 200, code)
			require.Equal(t, "pi_1", confirmed.ID)
			require.NotEmpty(t, confirmed.Status)
			require.Positive(t, confirmed.Amount)
			require.NotEmpty(t, confirmed.Currency)
		} else {
			check(err)
		}

		intents, _, err := client.List(t.Context(), time.Unix(100, 0), time.Time{}, "")
		if err == nil {
			require.Equal(t, 200, code)
			for _, i := range intents {
				require.NotEmpty(t, i.ID)
			}
		} else {
			check(err)
		}
	})
}

// FuzzOperatorMessage checks that no text around a secret brings it into an error, a log
// or a row.
func FuzzOperatorMessage(f *testing.F) {
	for _, around := range []string{"", " ", "'", "\n", "\x00", "x", "sk_", "=", "\u00a0", "\u2028", "é", "\xff"} {
		f.Add(around, around)
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		if strings.Contains(before+after, canary) {
			return
		}
		for _, secret := range []string{
			secretKey, "rk_live_" + canary, "ek_test_" + canary, webhookSecret, clientSecret, "s\x00k_test_" + canary, canary + "@example.com",
		} {
			body, err := json.Marshal(map[string]any{"error": map[string]any{"type": "invalid_request_error", "message": before + secret + after}})
			require.NoError(t, err)
			client := newClient(t, "", func(cfg *payments.Config) {
				cfg.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: 400, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
				})
			})
			text := confirmFailure(t, client).Error() // confirmFailure looks for the canary
			require.LessOrEqual(t, utf8.RuneCountInString(text), 400)
			require.True(t, utf8.ValidString(text))
			require.NotContains(t, text, "\x00")
		}
	})
}
