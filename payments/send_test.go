package payments_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
)

func TestResends(t *testing.T) {
	t.Parallel()
	var (
		paid      = answer{status: 200, body: intent("succeeded")}
		badKey    = answer{status: 401, body: stripeError("invalid_request_error", "", "")}
		locked    = answer{status: 429, body: stripeError("invalid_request_error", "lock_timeout", "")}
		inUse     = answer{status: 409, body: stripeError("invalid_request_error", "idempotency_key_in_use", "")}
		gateway   = answer{status: 502, body: "<html>"}
		saved500  = answer{status: 500, body: stripeError("api_error", "", "")}
		noCard    = answer{status: 402, body: stripeError("card_error", "card_declined", "")}
		unknownPM = answer{status: 400, body: stripeError("invalid_request_error", "resource_missing", `,"param":"payment_method"`)}
		misused   = answer{status: 400, body: stripeError("idempotency_error", "", "")}
	)
	const ok = payments.Outcome(-1)
	tests := map[string]struct {
		answers []answer
		outcome payments.Outcome
		sends   int
	}{
		"lock, then paid":                             {[]answer{locked, paid}, ok, 2},
		"key in use, then its answer":                 {[]answer{inUse, inUse, paid}, ok, 3},
		"gateway, then paid":                          {[]answer{gateway, paid}, ok, 2},
		"doubt, then a decline, which is the answer":  {[]answer{gateway, noCard}, payments.Declined, 2},
		"doubt, then a refusal, which is the answer":  {[]answer{gateway, unknownPM}, payments.Refused, 2},
		"doubt, then locks: still in doubt":           {[]answer{gateway, locked}, payments.Unknown, 3},
		"lock, doubt, lock: still in doubt":           {[]answer{locked, gateway, locked}, payments.Unknown, 3},
		"doubt, then a bad API key: still in doubt":   {[]answer{gateway, badKey}, payments.Unknown, 2},
		"locks alone: not run":                        {[]answer{locked}, payments.NotExecuted, 3},
		"lock, then a bad API key: not run":           {[]answer{locked, badKey}, payments.NotExecuted, 2},
		"a saved 500 is not retried":                  {[]answer{saved500, paid}, payments.Unknown, 1},
		"doubt, then a saved 500: stop":               {[]answer{gateway, saved500, paid}, payments.Unknown, 2},
		"doubt, then other parameters under one key":  {[]answer{gateway, misused, paid}, payments.Unknown, 2},
		"the third answer is the last one waited for": {[]answer{gateway, gateway, gateway, paid}, payments.Unknown, 3},
		"a decline is not retried":                    {[]answer{noCard, paid}, payments.Declined, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			provider := startProvider(t, test.answers...)
			_, err := newClient(t, provider.url).Confirm(t.Context(), confirmKey, "pi_1")
			if test.outcome == ok {
				require.NoError(t, err)
			} else {
				require.Equal(t, test.outcome, failure(t, err).Outcome)
			}
			require.Len(t, provider.seen(), test.sends)
			for _, r := range provider.seen() {
				require.Equal(t, []string{confirmKey}, r.header["Idempotency-Key"])
				require.Equal(t, provider.seen()[0].form, r.form)
			}
		})
	}
}

func TestABadAPIKeyAfterDoubtStillRaisesTheAlarm(t *testing.T) {
	t.Parallel()
	provider := startProvider(t,
		answer{status: 502},
		answer{status: 401, body: stripeError("invalid_request_error", "", "")})

	_, err := newClient(t, provider.url).Confirm(t.Context(), confirmKey, "pi_1")
	e := failure(t, err)
	require.Equal(t, payments.Unknown, e.Outcome)
	require.True(t, e.NeedsOperator)
	require.Equal(t, time.Minute, e.RetryAfter)
}

func TestPausesGrow(t *testing.T) {
	t.Parallel()
	provider := startProvider(t, answer{status: 503})
	client := newClient(t, provider.url)
	var pauses []time.Duration
	client.SetSleep(func(_ context.Context, d time.Duration) error {
		pauses = append(pauses, d)
		return nil
	})

	_, err := client.Confirm(t.Context(), confirmKey, "pi_1")
	require.Error(t, err)
	require.Len(t, pauses, 2)
	for i, longest := range []time.Duration{500 * time.Millisecond, time.Second} {
		require.GreaterOrEqual(t, pauses[i], longest/2)
		require.LessOrEqual(t, pauses[i], longest)
	}
}

func TestAPauseIsAsLongAsTheProviderAsks(t *testing.T) {
	t.Parallel()
	provider := startProvider(t,
		answer{status: 503, header: http.Header{"Retry-After": {"3"}}},
		answer{status: 200, body: intent("succeeded")})
	client := newClient(t, provider.url)
	var pauses []time.Duration
	client.SetSleep(func(_ context.Context, d time.Duration) error {
		pauses = append(pauses, d)
		return nil
	})

	_, err := client.Confirm(t.Context(), confirmKey, "pi_1")
	require.NoError(t, err)
	require.Equal(t, []time.Duration{3 * time.Second}, pauses)
}

func TestNoResendWithoutTimeForAnAnswer(t *testing.T) {
	t.Parallel()
	provider := startProvider(t, answer{
		status: 429,
		body:   stripeError("invalid_request_error", "lock_timeout", ""),
		header: http.Header{"Retry-After": {"19"}}, // of a budget of 20 seconds
	})

	_, err := newClient(t, provider.url).Confirm(t.Context(), confirmKey, "pi_1")
	require.Equal(t, payments.NotExecuted, failure(t, err).Outcome)
	require.Len(t, provider.seen(), 1)
}

func TestNoResendForACallerWhoLeft(t *testing.T) {
	t.Parallel()
	provider := startProvider(t, answer{status: 503})
	client := newClient(t, provider.url)
	ctx, cancel := context.WithCancel(t.Context())
	client.SetSleep(func(ctx context.Context, _ time.Duration) error {
		cancel()
		return ctx.Err()
	})

	_, err := client.Confirm(ctx, confirmKey, "pi_1")
	require.Equal(t, payments.Unknown, failure(t, err).Outcome)
	require.Len(t, provider.seen(), 1)
}

func TestThePauseItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		require.NoError(t, payments.Sleep(ctx, 10*time.Second))
		require.Equal(t, 10*time.Second, time.Since(start))
		require.ErrorIs(t, payments.Sleep(ctx, time.Hour), context.DeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(start))
	})
}

func TestEachSendIsLogged(t *testing.T) {
	t.Parallel()
	provider := startProvider(t,
		answer{status: 502},
		answer{status: 401, body: stripeError("invalid_request_error", "", "")},
		answer{status: 200, body: intent("succeeded")})
	log := &buffer{}
	client := newClient(t, provider.url, func(cfg *payments.Config) { cfg.Logger = slog.New(slog.NewJSONHandler(log, nil)) })
	_, err := client.Confirm(t.Context(), confirmKey, "pi_1")
	require.Error(t, err)
	_, err = client.Get(t.Context(), "pi_1")
	require.NoError(t, err)

	var got []map[string]any
	for line := range strings.Lines(log.String()) {
		var fields map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &fields))
		require.NotZero(t, fields["duration"])
		delete(fields, "duration")
		delete(fields, "time")
		got = append(got, fields)
	}
	require.Equal(t, []map[string]any{
		{
			"level": "WARN", "msg": "payment provider call", "call": "confirm", "idempotency_key": confirmKey,
			"payment_intent": "pi_1", "attempt": 1.0, "status": 502.0, "request_id": "req_1", "outcome": "unknown",
			"error": "payments: unknown, status 502, request req_1: unreadable response",
		},
		{
			"level": "ERROR", "msg": "payment provider call", "call": "confirm", "idempotency_key": confirmKey,
			"payment_intent": "pi_1", "attempt": 2.0, "status": 401.0, "request_id": "req_1", "outcome": "not executed",
			"error": "payments: not executed, status 401, type invalid_request_error, request req_1",
		},
		{
			"level": "INFO", "msg": "payment provider call", "call": "get", "idempotency_key": "",
			"payment_intent": "pi_1", "attempt": 1.0, "status": 200.0, "request_id": "req_1", "outcome": "answered",
		},
	}, got)
}

// Whoever measures hears of each send, the ones that are sent again included.
func TestObserve(t *testing.T) {
	t.Parallel()
	provider := startProvider(t,
		answer{status: 502}, answer{status: 200, body: intent("succeeded")},
		answer{status: 402, body: stripeError("card_error", "card_declined", "")})
	var heard []payments.Attempt
	client := newClient(t, provider.url, func(c *payments.Config) {
		c.Observe = func(e payments.Attempt) { heard = append(heard, e) }
	})
	_, err := client.Confirm(t.Context(), confirmKey, "pi_1")
	require.NoError(t, err)
	_, err = client.Confirm(t.Context(), confirmKey, "pi_1")
	require.Error(t, err)
	require.Len(t, heard, 3)
	for i, want := range []string{"unknown", "", "declined"} {
		require.Equal(t, "confirm", heard[i].Call)
		require.Positive(t, heard[i].Took)
		if want == "" {
			require.Nil(t, heard[i].Err)
			continue
		}
		require.Equal(t, want, heard[i].Err.Outcome.String())
	}
}
