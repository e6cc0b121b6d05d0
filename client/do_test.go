package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
)

// What is no final answer is followed by the same request under the same key.
func TestTheSameAgain(t *testing.T) {
	t.Parallel()
	const html = "<html><h1>Bad Gateway</h1></html>"
	for name, first := range map[string]http.HandlerFunc{
		"still running":                     refused(409, "idempotency-key-in-progress", "same-key", "Retry-After", "1"),
		"outcome unknown":                   refused(503, "payment-outcome-unknown", "same-key", "Retry-After", "1"),
		"rate limited":                      refused(429, "rate-limited", "same-key", "Retry-After", "1"),
		"a 4xx of a future API":             refused(425, "too-early", "same-key"),
		"an internal error":                 refused(500, "internal-error", "same-key"),
		"no answer":                         hangUp,
		"half an answer":                    cut,
		"half an answer without a length":   answer(201, jsonType, `{"id":"o1","status":"pa`),
		"an empty 201":                      answer(201, jsonType, ""),
		"a 201 that is no object":           answer(201, jsonType, "null"),
		"a 201 of something else":           answer(201, "text/html", html),
		"a 200 of a captive portal":         answer(200, "text/html", html),
		"a 200 that only looks like it":     answer(200, jsonType, `{"id":"o1"}`),
		"taken, and not done yet":           answer(202, jsonType, `{"state":"in_progress"}`, "Retry-After", "1"),
		"a proxy's 502":                     answer(502, "text/html", html),
		"a proxy's 401":                     answer(401, "text/html", html),
		"a proxy's 403":                     answer(403, "text/html", html),
		"a firewall's JSON":                 answer(403, jsonType, `{"retry":"new-key"}`),
		"a 503 without a body":              answer(503, "", ""),
		"a problem without a retry":         answer(503, problemType, `{"type":"/problems/temporarily-unavailable","status":503}`),
		"a 402 without a retry":             answer(402, problemType, `{"type":"/problems/payment-declined","status":402}`),
		"a retry that nobody knows":         refused(400, "malformed-request", "after-lunch"),
		"a problem that is cut":             answer(402, problemType, `{"type":"/problems/payment-declined","retry":"new-key"`),
		"a problem with a retry of 1":       answer(402, problemType, `{"retry":1}`),
		"a redirect that asks for the same": answer(308, "", "", "Location", "/elsewhere"),
		"a redirect that asks for a GET":    answer(303, "", "", "Location", "/elsewhere"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, first, first, created("Idempotent-Replayed", "true"))
			order, err := b.CreateOrder(t.Context(), key, tea())
			require.NoError(t, err)
			require.Equal(t, "o1", order.ID)
			require.Equal(t, int64(2500), order.Amount)

			require.Len(t, b.sent(), 3)
			require.Len(t, b.observed, 3)
			for i, r := range b.sent() {
				require.Equal(t, "POST", r.method)
				require.Equal(t, "/v1/orders", r.uri, "redirects are not followed")
				require.Equal(t, []string{string(key)}, r.header["Idempotency-Key"])
				require.Equal(t, "Bearer key-of-the-account", r.header.Get("Authorization"))
				require.Equal(t, "application/json", r.header.Get("Content-Type"))
				require.Equal(t, b.sent()[0].body, r.body)
				require.Equal(t, key, b.observed[i].Key)
			}
			require.JSONEq(t, `{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa",
				"items":[{"sku":"tea","description":"Green tea","quantity":2,"unit_amount":1250}]}`, b.sent()[0].body)
			require.True(t, b.observed[2].Response.Replayed())
		})
	}
}

// A final no is told as it is, and never sent again.
func TestAFinalNo(t *testing.T) {
	t.Parallel()
	t.Run("declined", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, declined)
		_, err := b.CreateOrder(t.Context(), key, tea())
		var problem *client.Problem
		require.ErrorAs(t, err, &problem)
		require.Equal(t, &client.Problem{
			Type: "/problems/payment-declined", Title: "T", Status: 402, Detail: "D.", Retry: client.RetryNewKey,
			Outcome: client.OutcomeFinal,
			Code:    "card_declined", DeclineCode: "insufficient_funds", OrderID: "o1",
		}, problem)
		require.EqualError(t, err, "402 payment-declined: D.")
		require.Len(t, b.sent(), 1)
	})
	t.Run("not valid", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, answer(422, problemType, `{"type":"/problems/validation-failed","title":"T","status":422,"detail":"See errors.",
			"retry":"corrected","outcome":"none","request_id":"r1","errors":[{"pointer":"/email","code":"required","detail":"is required"}]}`))
		_, err := b.CreateOrder(t.Context(), key, tea())
		var problem *client.Problem
		require.ErrorAs(t, err, &problem)
		require.Equal(t, []client.FieldError{{Pointer: "/email", Code: "required", Detail: "is required"}}, problem.Errors)
		require.Equal(t, "r1", problem.RequestID)
		require.Equal(t, client.RetryCorrected, problem.Retry)
		require.Equal(t, client.OutcomeNone, problem.Outcome)
		require.Len(t, b.sent(), 1)
		require.EqualError(t, err, "422 validation-failed: See errors.; /email is required")
	})
	t.Run("never, whatever the status", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, refused(503, "closed-for-good", "never", "Retry-After", "1"))
		_, err := b.CreateOrder(t.Context(), key, tea())
		var problem *client.Problem
		require.ErrorAs(t, err, &problem)
		require.Equal(t, client.RetryNever, problem.Retry)
		require.Len(t, b.sent(), 1)
	})
}

// A payment that the customer must approve ends the call, and the next call continues it.
func TestDo_actionRequired(t *testing.T) {
	t.Parallel()
	const secret = "pi_1_secret_x"
	b := newBench(t,
		answer(202, jsonType, `{"state":"in_progress"}`),
		answer(202, jsonType, `{"state":"requires_action","action":{"type":"use_stripe_sdk","client_secret":"`+secret+`","payment_intent_id":"pi_1"}}`),
		created())
	_, err := b.CreateOrder(t.Context(), key, tea())
	var required *client.ActionRequiredError
	require.ErrorAs(t, err, &required)
	require.Equal(t, &client.ActionRequiredError{
		Key: key, Action: client.Action{Type: "use_stripe_sdk", ClientSecret: secret, PaymentIntentID: "pi_1"},
	}, required)
	require.NotContains(t, fmt.Sprintf("%v %+v %s", err, required, required.Action), secret)

	order, err := b.CreateOrder(t.Context(), key, tea())
	require.NoError(t, err)
	require.Equal(t, "o1", order.ID)
	require.Len(t, b.sent(), 3)
}

// A refusal is about one send. Whether it settles those before it is another
// question.
func TestARefusalAfterADoubt(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]http.HandlerFunc{
		"the key's final response": declined,
		"an expired key": answer(422, problemType, `{"type":"/problems/idempotency-key-expired","title":"T","status":422,"detail":"D.",
			"retry":"never","outcome":"final","request_id":"r1","order_id":"o1"}`),
	} {
		t.Run(name+": final", func(t *testing.T) {
			t.Parallel()
			b := newBench(t, hangUp, second)
			_, err := b.CreateOrder(t.Context(), key, tea())
			var problem *client.Problem
			require.ErrorAs(t, err, &problem)
			require.Equal(t, "o1", problem.OrderID)
			require.Equal(t, client.OutcomeFinal, problem.Outcome)
		})
	}
	for name, second := range map[string]http.HandlerFunc{
		"credentials withdrawn meanwhile":   refused(401, "unauthorized", "corrected"),
		"the body mangled by a proxy":       refused(400, "malformed-request", "corrected"),
		"an address that somebody took off": refused(404, "not-found", "never"),
		"an outcome of a later API": answer(422, problemType, `{"type":"/problems/closed","title":"T","status":422,"detail":"D.",
			"retry":"never","outcome":"of another time","request_id":"r1"}`),
	} {
		t.Run(name+": outcome unknown", func(t *testing.T) {
			t.Parallel()
			b := newBench(t, hangUp, second)
			_, err := b.CreateOrder(t.Context(), key, tea())
			var unknown *client.OutcomeUnknownError
			require.ErrorAs(t, err, &unknown)
			require.Equal(t, key, unknown.Key)
			require.Equal(t, 2, unknown.Attempts)
			require.Contains(t, []client.Retry{client.RetryCorrected, client.RetryNever}, unknown.Problem.Retry)
			var problem *client.Problem
			require.False(t, errors.As(err, &problem), "which would read as final")
			require.Contains(t, err.Error(), "D.")
		})
	}
}

// Who stops early is told that nothing is known.
func TestTheContextEnds(t *testing.T) {
	t.Parallel()
	busy := refused(503, "payment-outcome-unknown", "same-key", "Retry-After", "2")
	requireUnknown := func(t *testing.T, err error, sends int, cause error) {
		t.Helper()
		var unknown *client.OutcomeUnknownError
		require.ErrorAs(t, err, &unknown)
		require.Equal(t, key, unknown.Key)
		require.Equal(t, sends, unknown.Attempts)
		require.ErrorIs(t, err, cause)
		require.Nil(t, unknown.Problem)
		var problem *client.Problem
		require.False(t, errors.As(err, &problem))
		require.NotContains(t, err.Error(), string(key))
	}
	t.Run("during a wait", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		b := newBenchWith(t, func(c *client.Config) {
			c.Sleep = func(ctx context.Context, _ time.Duration) error {
				cancel()
				return ctx.Err()
			}
		}, busy)
		_, err := b.CreateOrder(ctx, key, tea())
		requireUnknown(t, err, 1, context.Canceled)
		require.ErrorContains(t, err, "503 payment-outcome-unknown: D.")
	})
	t.Run("during a wait that a timer makes", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		b := newBenchWith(t, func(c *client.Config) {
			c.Sleep = nil
			c.Observe = func(client.Attempt) { time.AfterFunc(10*time.Millisecond, cancel) }
		}, busy)
		_, err := b.CreateOrder(ctx, key, tea())
		requireUnknown(t, err, 1, context.Canceled)
	})
	t.Run("before the wait would: it is not begun", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		b := newBench(t, busy)
		_, err := b.CreateOrder(ctx, key, tea())
		requireUnknown(t, err, 1, context.DeadlineExceeded)
		require.Empty(t, b.waits)
		require.NoError(t, ctx.Err(), "nobody waited for the deadline")
	})
	t.Run("during a send", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		b := newBench(t, busy, func(_ http.ResponseWriter, r *http.Request) {
			cancel()
			<-r.Context().Done()
		})
		_, err := b.CreateOrder(ctx, key, tea())
		requireUnknown(t, err, 2, context.Canceled)
	})
	t.Run("during a read: nothing was in doubt", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		b := newBench(t, busy)
		_, err := b.GetOrder(ctx, "o1")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var unknown *client.OutcomeUnknownError
		require.False(t, errors.As(err, &unknown))
	})
}

// One send has a bound of its own: a server that hangs is asked again.
func TestASendThatHangs(t *testing.T) {
	t.Parallel()
	b := newBenchWith(t, func(c *client.Config) { c.Timeout = 20 * time.Millisecond },
		func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, created())
	_, err := b.CreateOrder(t.Context(), key, tea())
	require.NoError(t, err)
	require.ErrorIs(t, b.observed[0].Err, context.DeadlineExceeded)
}

func TestWaitsGrowToTheirBound(t *testing.T) {
	t.Parallel()
	script := make([]http.HandlerFunc, 8, 9)
	for i := range script {
		script[i] = hangUp
	}
	script[5] = refused(503, "temporarily-unavailable", "same-key", "Retry-After", "7")
	var limits []time.Duration
	b := newBenchWith(t, func(c *client.Config) {
		c.Backoff, c.MaxBackoff = time.Second, 10*time.Second
		c.Random = func(limit time.Duration) time.Duration {
			limits = append(limits, limit)
			return limit / 4
		}
	}, append(script, created())...)
	_, err := b.CreateOrder(t.Context(), key, tea())
	require.NoError(t, err)
	require.Equal(t, []time.Duration{1e9, 2e9, 4e9, 8e9, 10e9, 10e9, 10e9, 10e9}, limits)
	require.Equal(t, []time.Duration{25e7, 5e8, 1e9, 2e9, 25e8, 95e8, 25e8, 25e8}, b.waits)
}

// Chance is even, and takes both ends.
func TestWaitsAreRandom(t *testing.T) {
	t.Parallel()
	seen := map[time.Duration]bool{}
	script := make([]http.HandlerFunc, 200, 201)
	for i := range script {
		script[i] = answer(502, "text/html", "")
	}
	b := newBenchWith(t, func(c *client.Config) { c.Random, c.Backoff, c.MaxBackoff = nil, 3, 3 }, append(script, created())...)
	_, err := b.CreateOrder(t.Context(), key, tea())
	require.NoError(t, err)
	for _, wait := range b.waits {
		seen[wait] = true
	}
	require.Equal(t, map[time.Duration]bool{0: true, 1: true, 2: true, 3: true}, seen)
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	for _, test := range []struct {
		value, date string
		want        time.Duration
	}{
		{"", "", 0},
		{"0", "", 0},
		{"1", "", time.Second},
		{"007", "", 7 * time.Second},
		{"120", "", 2 * time.Minute},
		{"99999999999", "", year},
		{"99999999999999999999999999", "", year},
		{"-1", "", 0},
		{"+1", "", 0},
		{"1.5", "", 0},
		{"1, 2", "", 0},
		{"soon", "", 0},
		{"Fri, 20 Nov 2026 09:30:13 GMT", "Fri, 20 Nov 2026 09:30:00 GMT", 13 * time.Second},
		{"Friday, 20-Nov-26 09:30:13 GMT", "Fri, 20 Nov 2026 09:30:00 GMT", 13 * time.Second},
		{"Fri, 20 Nov 2026 09:30:00 GMT", "Fri, 20 Nov 2026 09:30:13 GMT", 0},
		{"Fri, 20 Nov 2099 09:30:00 GMT", "Fri, 20 Nov 2026 09:30:13 GMT", year},
		{"Sun, 06 Nov 1994 08:49:37 GMT", "", 0},
	} {
		a := client.Response{Header: http.Header{"Retry-After": {test.value}, "Date": {test.date}}}
		require.Equal(t, test.want, a.RetryAfter(), "%q at %q", test.value, test.date)
	}
	t.Run("a date without a clock beside it", func(t *testing.T) {
		t.Parallel()
		in := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
		wait := client.Response{Header: http.Header{"Retry-After": {in}}}.RetryAfter()
		require.InDelta(t, time.Hour, wait, float64(time.Minute))
	})
	t.Run("is waited for in either form", func(t *testing.T) {
		t.Parallel()
		b := newBench(t,
			refused(503, "temporarily-unavailable", "same-key", "Retry-After", "3"),
			answer(503, "text/html", "", "Date", "Fri, 20 Nov 2026 09:30:00 GMT", "Retry-After", "Fri, 20 Nov 2026 09:30:13 GMT"),
			created())
		_, err := b.CreateOrder(t.Context(), key, tea())
		require.NoError(t, err)
		require.Equal(t, []time.Duration{3 * time.Second, 13 * time.Second}, b.waits)
	})
}

func TestABadAnswerWithoutEnd(t *testing.T) {
	t.Parallel()
	endless := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", jsonType)
		w.WriteHeader(http.StatusCreated)
		block := make([]byte, 1<<20)
		for range block {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}
	b := newBench(t, endless, created())
	_, err := b.CreateOrder(t.Context(), key, tea())
	require.NoError(t, err)
	require.ErrorIs(t, b.observed[0].Err, client.ErrUnreadable)
}

// Send shows what came, and judges nothing.
func TestSendIsOneExchange(t *testing.T) {
	t.Parallel()
	b := newBench(t, refused(409, "idempotency-key-in-progress", "same-key", "Retry-After", "1"), hangUp)
	request := client.Request{Key: key, Path: "/v1/orders", Body: []byte(`{ "as" : "it is" }`)}
	got, err := b.Send(t.Context(), request)
	require.NoError(t, err)
	require.Equal(t, 409, got.Status)
	require.Equal(t, time.Second, got.RetryAfter())
	require.False(t, got.Replayed())
	require.Contains(t, got.String(), `409: {"type"`)
	require.Equal(t, `{ "as" : "it is" }`, b.sent()[0].body)

	_, err = b.Send(t.Context(), request)
	require.Error(t, err)
	require.Len(t, b.sent(), 2)
	require.Empty(t, b.waits)
}

// Without a key nothing is sent.
func TestAKeyIsNeeded(t *testing.T) {
	t.Parallel()
	b := newBench(t, created())
	for _, bad := range []client.Key{"", "too-short", "with a blank in it", "with-a-line-break\n", client.Key(fmt.Sprintf("%0256d", 1)), "schlüssel-schlüssel"} {
		_, err := b.CreateOrder(t.Context(), bad, tea())
		require.ErrorIs(t, err, client.ErrInvalidKey, bad)
		_, err = b.CreateRefund(t.Context(), bad, "o1", client.RefundParams{})
		require.ErrorIs(t, err, client.ErrInvalidKey, bad)
		_, err = b.Send(t.Context(), client.Request{Key: bad, Path: "/v1/orders"})
		require.ErrorIs(t, err, client.ErrInvalidKey, bad)
		_, err = b.GetKey(t.Context(), bad)
		require.ErrorIs(t, err, client.ErrInvalidKey, bad)
	}
	require.Empty(t, b.sent())
}

func TestAKeyThatBeginsWithAQuote(t *testing.T) {
	t.Parallel()
	b := newBench(t, created())
	_, err := b.CreateOrder(t.Context(), `"quoted\"0123456789`, tea())
	require.NoError(t, err)
	require.Equal(t, []string{`"\"quoted\\\"0123456789"`}, b.sent()[0].header["Idempotency-Key"])
}

func TestNewKey(t *testing.T) {
	t.Parallel()
	one, two := client.NewKey(), client.NewKey()
	require.NotEqual(t, one, two)
	require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, string(one))
}
