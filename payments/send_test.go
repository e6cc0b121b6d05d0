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

func TestRun_retries(t *testing.T) {
	t.Parallel()
	var (
		paid          = response{status: 200, body: intent("succeeded")}
		badKey        = response{status: 401, body: stripeError("invalid_request_error", "", "")}
		locked        = response{status: 429, body: stripeError("invalid_request_error", "lock_timeout", "")}
		inUse         = response{status: 409, body: stripeError("invalid_request_error", "idempotency_key_in_use", "")}
		gateway       = response{status: 502, body: "<html>"}
		replayedError = response{status: 500, body: stripeError("api_error", "", "")}
		noCard        = response{status: 402, body: stripeError("card_error", "card_declined", "")}
		unknownPM     = response{status: 400, body: stripeError("invalid_request_error", "resource_missing", `,"param":"payment_method"`)}
		misused       = response{status: 400, body: stripeError("idempotency_error", "", "")}
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
		"locks only":                                {[]response{locked}, payments.NotExecuted, 3},
		"lock, then a bad API key":                  {[]response{locked, badKey}, payments.NotExecuted, 2},
		"stored 500":                                {[]response{replayedError, paid}, payments.Unknown, 1},
		"unknown, then a stored 500":                {[]response{gateway, replayedError, paid}, payments.Unknown, 2},
		"unknown, then a key with other parameters": {[]response{gateway, misused, paid}, payments.Unknown, 2},
		"three attempts at most":                    {[]response{gateway, gateway, gateway, paid}, payments.Unknown, 3},
		"declined":                                  {[]response{noCard, paid}, payments.Declined, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			provider := startProvider(t, test.responses...)
			_, err := newClient(t, provider.url).Confirm(t.Context(), confirmKey, "pi_1", true)
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

func TestRun_badAPIKeyAfterUnknown(t *testing.T) {
	t.Parallel()
	provider := startProvider(t,
		response{status: 502},
		response{status: 401, body: stripeError("invalid_request_error", "", "")})

	e := confirmFailure(t, newClient(t, provider.url))
	require.Equal(t, payments.Unknown, e.Outcome)
	require.True(t, e.NeedsOperator)
	require.Equal(t, time.Minute, e.RetryAfter)
}

func TestRun_backoff(t *testing.T) {
	t.Parallel()
	const sec = time.Second
	for name, test := range map[string]struct {
		header            http.Header
		shortest, longest []time.Duration
	}{
		"default":     {nil, []time.Duration{sec / 4, sec / 2}, []time.Duration{sec / 2, sec}},
		"Retry-After": {http.Header{"Retry-After": {"3"}}, []time.Duration{3 * sec, 3 * sec}, []time.Duration{3 * sec, 3 * sec}},
	} {
		client := newClient(t, startProvider(t, response{status: 503, header: test.header}).url)
		var waits []time.Duration
		client.SetSleep(func(_ context.Context, d time.Duration) error {
			waits = append(waits, d)
			return nil
		})
		require.Error(t, confirmFailure(t, client))
		require.Len(t, waits, 2, name)
		for i, wait := range waits {
			require.GreaterOrEqual(t, wait, test.shortest[i], name)
			require.LessOrEqual(t, wait, test.longest[i], name)
		}
	}
}

func TestRun_noTimeLeft(t *testing.T) {
	t.Parallel()
	provider := startProvider(t, response{
		status: 429,
		body:   stripeError("invalid_request_error", "lock_timeout", ""),
		header: http.Header{"Retry-After": {"19"}}, // of a budget of 20 seconds
	})

	require.Equal(t, payments.NotExecuted, confirmFailure(t, newClient(t, provider.url)).Outcome)
	require.Len(t, provider.seen(), 1)
}

func TestRun_cancelled(t *testing.T) {
	t.Parallel()
	provider := startProvider(t, response{status: 503})
	client := newClient(t, provider.url)
	ctx, cancel := context.WithCancel(t.Context())
	client.SetSleep(func(ctx context.Context, _ time.Duration) error {
		cancel()
		return ctx.Err()
	})

	_, err := client.Confirm(ctx, confirmKey, "pi_1", true)
	require.Equal(t, payments.Unknown, failure(t, err).Outcome)
	require.Len(t, provider.seen(), 1)
}

func TestSleep(t *testing.T) {
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

func TestAttempt_log(t *testing.T) {
	t.Parallel()
	provider := startProvider(t,
		response{status: 502},
		response{status: 401, body: stripeError("invalid_request_error", "", "")},
		response{status: 200, body: intent("succeeded")})
	log := &buffer{}
	client := newClient(t, provider.url, func(cfg *payments.Config) { cfg.Logger = slog.New(slog.NewJSONHandler(log, nil)) })
	require.Error(t, confirmFailure(t, client))
	_, err := client.Get(t.Context(), "pi_1")
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
			"error": "payments: not executed, status 401, type invalid_request_error, request req_1: Text for the customer.",
		},
		{
			"level": "INFO", "msg": "payment provider call", "call": "get", "idempotency_key": "",
			"payment_intent": "pi_1", "attempt": 1.0, "status": 200.0, "request_id": "req_1", "outcome": "answered",
		},
	}, got)
}

func TestAttempt_observe(t *testing.T) {
	t.Parallel()
	provider := startProvider(t,
		response{status: 502}, response{status: 200, body: intent("succeeded")},
		response{status: 402, body: stripeError("card_error", "card_declined", "")})
	var observed []payments.Attempt
	client := newClient(t, provider.url, func(c *payments.Config) {
		c.Observe = func(e payments.Attempt) { observed = append(observed, e) }
	})
	_, err := client.Confirm(t.Context(), confirmKey, "pi_1", true)
	require.NoError(t, err)
	require.Error(t, confirmFailure(t, client))
	require.Len(t, observed, 3)
	for i, want := range []string{"unknown", "", "declined"} {
		require.Equal(t, "confirm", observed[i].Call)
		require.Positive(t, observed[i].Took)
		if want == "" {
			require.Nil(t, observed[i].Err)
			continue
		}
		require.Equal(t, want, observed[i].Err.Outcome.String())
	}
}
