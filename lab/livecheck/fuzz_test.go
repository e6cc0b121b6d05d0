package livecheck

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
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
			final := e.Outcome == payments.Declined || e.Outcome == payments.Refused
			require.Equal(t, final, e.RetryAfter == 0)
			require.LessOrEqual(t, e.RetryAfter, time.Hour)
			require.True(t, e.Outcome != payments.Declined || code == 402)
			require.True(t, e.Outcome != payments.Refused || code == 400)
			require.True(t, e.Outcome != payments.NotExecuted || slices.Contains([]int{400, 401, 403, 404, 429}, code))
			require.True(t, e.Message == "" || final)
			require.NotContains(t, e.Error()+e.Message, "_secret_")
		})
	})
}
