package payments_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
)

func TestRun_retries(t *testing.T) {
	t.Parallel()
	var (
		paid      = response{status: 200, body: intent("succeeded")}
		badKey    = response{status: 401, body: stripeError(invalid, "", "")}
		locked    = response{status: 429, body: stripeError(invalid, "lock_timeout", "")}
		inUse     = response{status: 409, body: stripeError(invalid, "idempotency_key_in_use", "")}
		gateway   = response{status: 502, body: "<html>"}
		noCard    = response{status: 402, body: stripeError("card_error", "card_declined", "")}
		unknownPM = response{status: 400, body: stripeError(invalid, "resource_missing", param("payment_method"))}
		misused   = response{status: 400, body: stripeError("idempotency_error", "", "")}
	)
	const ok = payments.Outcome(-1)
	for name, test := range map[string]struct {
		responses []response
		outcome   payments.Outcome
		attempts  int
	}{
		"lock, then paid":                           {[]response{locked, paid}, ok, 2},
		"key in use, then its response":             {[]response{inUse, inUse, paid}, ok, 3},
		"gateway, then paid":                        {[]response{gateway, paid}, ok, 2},
		"unknown, then declined":                    {[]response{gateway, noCard}, payments.Declined, 2},
		"unknown, then refused":                     {[]response{gateway, unknownPM}, payments.Refused, 2},
		"unknown, then locks":                       {[]response{gateway, locked}, payments.Unknown, 3},
		"lock, unknown, lock":                       {[]response{locked, gateway, locked}, payments.Unknown, 3},
		"unknown, then a bad API key":               {[]response{gateway, badKey}, payments.Unknown, 2},
		"lock, then a bad API key":                  {[]response{locked, badKey}, payments.NotExecuted, 2},
		"unknown, then a key with other parameters": {[]response{gateway, misused, paid}, payments.KeyUsed, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			provider := respond(test.responses...)
			_, err := confirm(t, newClient(t, provider))
			if test.outcome == ok {
				require.NoError(t, err)
			} else {
				require.Equal(t, test.outcome, failure(t, err).Outcome)
			}
			require.Len(t, provider.seen(), test.attempts)
			for _, r := range provider.seen() {
				require.Equal(t, []string{confirmKey}, r.header["Idempotency-Key"])
				require.Equal(t, provider.seen()[0].form, r.form)
			}
		})
	}
}

func TestRun_backoff(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cancelAfter       time.Duration
		timeout           time.Duration
		shortest, longest time.Duration
		attempts          int
	}{
		"default":              {time.Hour, 20 * time.Second, 750 * time.Millisecond, 1500 * time.Millisecond, 3},
		"beyond the deadline":  {time.Hour, 250 * time.Millisecond, 0, 0, 1},
		"cancelled in between": {100 * time.Millisecond, 20 * time.Second, 100 * time.Millisecond, 100 * time.Millisecond, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				provider := respond(response{status: 429, body: stripeError(invalid, "lock_timeout", "")})
				client := newClient(t, provider, func(c *payments.Config) { c.Backoff, c.Timeout = 0, test.timeout })
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				time.AfterFunc(test.cancelAfter, cancel)
				start := time.Now()
				_, err := client.Confirm(ctx, confirmKey, "pi_1", true)
				require.Equal(t, payments.NotExecuted, failure(t, err).Outcome)
				require.Len(t, provider.seen(), test.attempts)
				require.GreaterOrEqual(t, time.Since(start), test.shortest)
				require.LessOrEqual(t, time.Since(start), test.longest)
			})
		})
	}
}

func TestAttempt_logAndObserve(t *testing.T) {
	t.Parallel()
	provider := respond(
		response{status: 502},
		response{status: 401, body: stripeError(invalid, "", "")},
		response{status: 200, body: intent("succeeded")})
	var log bytes.Buffer
	var observed []payments.HTTPAttempt
	client := newClient(t, provider, func(c *payments.Config) {
		c.Logger = slog.New(slog.NewJSONHandler(&log, nil))
		c.Observe = func(e payments.HTTPAttempt) { observed = append(observed, e) }
	})
	e := confirmFailure(t, client)
	_, err := client.Get(t.Context(), "pi_1")
	require.NoError(t, err)

	for _, level := range []string{"WARN", "ERROR", "INFO"} {
		require.Equal(t, 1, strings.Count(log.String(), `"level":"`+level+`"`))
	}
	require.Contains(t, log.String(), `"call":"confirm","provider_key":"`+confirmKey+`","payment_intent":"pi_1","attempt":2,`)
	require.Contains(t, log.String(), `"status":401,"request_id":"req_1",`)
	require.Len(t, observed, 3)
	require.Positive(t, observed[0].Took)
	require.Equal(t, "confirm", observed[1].Call)
	require.Same(t, e, observed[1].Err)
	require.Nil(t, observed[2].Err)
}

// A notice is logged once a day, without secrets.
func TestNotice_daily(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		notice := "Version 2024-06-20 is outdated, see https://docs.stripe.com/upgrades; " + secretKey
		provider := respond(response{status: 200, body: intent("succeeded"), header: http.Header{"Stripe-Notice": {notice}}})
		var log bytes.Buffer
		client := newClient(t, provider, func(c *payments.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		for _, logged := range []int{1, 1, 2} { // at 0, 13 and 26 hours
			for range 3 {
				_, err := confirm(t, client)
				require.NoError(t, err)
			}
			require.Equal(t, logged, strings.Count(log.String(), "level=WARN"))
			<-time.After(13 * time.Hour)
		}
		require.Contains(t, log.String(), "Version 2024-06-20 is outdated, see https://docs.stripe.com/upgrades; [removed]")
		require.NotContains(t, log.String(), canary)
	})
}
