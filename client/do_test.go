package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
	"example.com/orders-api/internal/foreigntest"
)

func TestDo_repeats(t *testing.T) {
	t.Parallel()
	const html = "<html><h1>Bad Gateway</h1></html>"
	for name, first := range map[string]http.HandlerFunc{
		"key in progress":               respondProblem(409, "idempotency-key-in-progress", "same-key", "Retry-After", "1"),
		"outcome unknown":               respondProblem(503, "payment-outcome-unknown", "same-key", "Retry-After", "1"),
		"unknown problem":               respondProblem(425, "too-early", "same-key"),
		"no response":                   closeConnection,
		"truncated":                     truncate,
		"too large":                     respond(201, jsonType, `{"id":"o0"`+strings.Repeat(" ", 1<<20)+"}"),
		"201 without a body":            respond(201, jsonType, ""),
		"201 in HTML":                   respond(201, "text/html", html),
		"200 with an order":             respond(200, jsonType, `{"id":"o1"}`),
		"202 without an action":         respond(202, jsonType, `{"state":"in_progress"}`, "Retry-After", "1"),
		"502 of a proxy":                respond(502, "text/html", html),
		"JSON of a firewall":            respond(403, jsonType, `{"retry":"new-key"}`),
		"problem without retry":         respond(402, problemType, `{"type":"/problems/payment-declined","status":402}`),
		"problem with an unknown retry": respondProblem(400, "malformed-request", "later"),
		"problem with a numeric retry":  respond(402, problemType, `{"retry":1}`),
		"redirect with the same method": respond(308, "", "", "Location", "/elsewhere"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, first, first, respondCreated("Idempotent-Replayed", "true"))
			order, err := f.CreateOrder(t.Context(), key, orderParams())
			require.NoError(t, err)
			require.Equal(t, "o1", order.ID)
			require.Len(t, f.received(), 3)
			require.Len(t, f.observed, 3)
			for i, r := range f.received() {
				require.Equal(t, "POST", r.method)
				require.Equal(t, "/v1/orders", r.uri, "redirects are not followed")
				require.Equal(t, []string{string(key)}, r.header["Idempotency-Key"])
				require.Equal(t, "Bearer api-key", r.header.Get("Authorization"))
				require.Equal(t, "application/json", r.header.Get("Content-Type"))
				require.Equal(t, f.received()[0].body, r.body)
				require.Equal(t, key, f.observed[i].Key)
			}
			require.JSONEq(t, `{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa",
				"items":[{"sku":"tea","description":"Green tea","quantity":2,"unit_amount":1250}]}`, f.received()[0].body)
			require.True(t, f.observed[2].Response.Replayed())
		})
	}
}

func TestDo_finalProblem(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		response http.HandlerFunc
		want     client.Problem
		text     string
	}{
		"invalid": {
			respond(422, problemType, `{"type":"/problems/validation-failed","title":"T","status":422,"detail":"/email is required (errors lists 1 more)",
			"retry":"corrected","outcome":"none","request_id":"r1","errors":[{"pointer":"/email","code":"required","detail":"is required"},
			{"pointer":"","code":"invalid_format","detail":"the query string cannot be read"}]}`),
			client.Problem{
				Type: "/problems/validation-failed", Title: "T", Status: 422, Detail: "/email is required (errors lists 1 more)", Retry: client.RetryCorrected,
				Outcome: client.OutcomeNone, RequestID: "r1",
				Errors: []client.FieldError{
					{Pointer: "/email", Code: "required", Detail: "is required"},
					{Code: "invalid_format", Detail: "the query string cannot be read"},
				},
			},
			"422 validation-failed: /email is required; the query string cannot be read",
		},
		"never, with a 503": {respondProblem(503, "closed", "never", "Retry-After", "1"), client.Problem{
			Type: "/problems/closed", Title: "T", Status: 503, Detail: "D.", Retry: client.RetryNever, RequestID: "r1",
		}, "503 closed: D."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, test.response)
			_, err := f.CreateOrder(t.Context(), key, orderParams())
			var problem *client.Problem
			require.ErrorAs(t, err, &problem)
			require.Equal(t, &test.want, problem)
			require.EqualError(t, err, test.text)
			require.Len(t, f.received(), 1)
		})
	}
}

func TestDo_actionRequired(t *testing.T) {
	t.Parallel()
	const secret = "pi_1_secret_x"
	f := newFixture(t,
		respond(202, jsonType, `{"state":"in_progress"}`),
		respond(202, jsonType, `{"state":"requires_action","action":{"type":"use_stripe_sdk","client_secret":"`+secret+`","payment_intent_id":"pi_1"}}`),
		respondCreated())
	_, err := f.CreateOrder(t.Context(), key, orderParams())
	var required *client.ActionRequiredError
	require.ErrorAs(t, err, &required)
	require.Equal(t, client.ActionRequiredError{Key: key, Action: client.Action{Type: "use_stripe_sdk", ClientSecret: secret, PaymentIntentID: "pi_1"}}, *required)
	status := client.KeyStatus{State: "requires_action", Action: &required.Action}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("", "error", err, "action", required.Action, "key", status)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("", "error", err, "action", required.Action, "key", status)
	fmt.Fprintf(&log, "%v %+v %s %+v %v", err, required, required.Action, status, f.observed)
	require.NotContains(t, log.String(), secret)
	for _, passedOn := range []any{required.Action, status} {
		document, err := json.Marshal(passedOn)
		require.NoError(t, err)
		require.Contains(t, string(document), `"client_secret":"`+secret+`"`, "what must be passed on is ordinary data")
	}

	_, err = f.CreateOrder(t.Context(), key, orderParams())
	require.NoError(t, err)
	require.Len(t, f.received(), 3)
}

func TestDo_respondAsync(t *testing.T) {
	t.Parallel()
	f := newFixture(t, closeConnection, respond(202, jsonType, `{}`), respond(202, jsonType, `{"key":"`+string(key)+`","state":"in_progress"}`), declined)
	_, err := f.CreateOrder(t.Context(), key, orderParams(), client.RespondAsync, client.Wait(1500*time.Millisecond))
	var accepted *client.AcceptedError
	require.ErrorAs(t, err, &accepted)
	require.Equal(t, client.AcceptedError{Status: client.KeyStatus{Key: key, State: "in_progress"}}, *accepted)
	require.EqualError(t, err, "client: the API has stored the request, which is in_progress; send it again with the same key")
	require.Len(t, f.received(), 3)
	for _, r := range f.received() {
		require.Equal(t, []string{"respond-async", "wait=1"}, r.header["Prefer"])
	}
	_, err = f.CreateOrder(t.Context(), key, orderParams(), client.RespondAsync)
	var problem *client.Problem
	require.ErrorAs(t, err, &problem)
}

func TestDo_problemAfterLostResponse(t *testing.T) {
	t.Parallel()
	respondOutcome := func(outcome string) http.HandlerFunc {
		return respond(422, problemType, `{"type":"/problems/idempotency-key-expired","title":"T","status":422,"detail":"D.",
			"retry":"never","outcome":"`+outcome+`","request_id":"r1","order_id":"o1"}`)
	}
	for name, test := range map[string]struct {
		second http.HandlerFunc
		final  bool
	}{
		"final response of the key": {declined, true},
		"key expired":               {respondOutcome("final"), true},
		"outcome of a later API":    {respondOutcome("unheard-of"), false},
		"credentials revoked":       {respondProblem(401, "unauthorized", "corrected"), false},
		"route removed":             {respondProblem(404, "not-found", "never"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, closeConnection, test.second)
			_, err := f.CreateOrder(t.Context(), key, orderParams())
			var problem *client.Problem
			if test.final {
				require.ErrorAs(t, err, &problem)
				require.Equal(t, "o1", problem.OrderID)
				require.Equal(t, client.OutcomeFinal, problem.Outcome)
				require.Equal(t, name == "final response of the key", problem.DeclineCode == "insufficient_funds")
				return
			}
			var unknown *client.OutcomeUnknownError
			require.ErrorAs(t, err, &unknown)
			require.Equal(t, key, unknown.Key)
			require.Equal(t, 2, unknown.Attempts)
			require.Contains(t, []client.Retry{client.RetryCorrected, client.RetryNever}, unknown.Problem.Retry)
			require.False(t, errors.As(err, &problem), "a *Problem would count as final")
			require.Contains(t, err.Error(), "D.")
		})
	}
}

func TestDo_contextEnds(t *testing.T) {
	t.Parallel()
	busy := respondProblem(503, "payment-outcome-unknown", "same-key", "Retry-After", "2")
	requireUnknown := func(t *testing.T, err error, attempts int, cause error) {
		t.Helper()
		var unknown *client.OutcomeUnknownError
		require.ErrorAs(t, err, &unknown)
		require.Equal(t, key, unknown.Key)
		require.Equal(t, attempts, unknown.Attempts)
		require.ErrorIs(t, err, cause)
		require.Nil(t, unknown.Problem)
		var problem *client.Problem
		require.False(t, errors.As(err, &problem))
		require.NotContains(t, err.Error(), string(key))
	}
	t.Run("during a delay", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		f := newFixtureWith(t, func(c *client.Config) {
			c.Observe = func(client.Attempt) { time.AfterFunc(10*time.Millisecond, cancel) }
		}, busy)
		f.SetSleep(client.Sleep)
		_, err := f.CreateOrder(ctx, key, orderParams())
		requireUnknown(t, err, 1, context.Canceled)
		require.ErrorContains(t, err, "503 payment-outcome-unknown: D.")
	})
	t.Run("deadline before the end of the delay", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		f := newFixture(t, busy)
		_, err := f.CreateOrder(ctx, key, orderParams())
		requireUnknown(t, err, 1, context.DeadlineExceeded)
		require.Empty(t, f.delays)
		require.NoError(t, ctx.Err(), "returned before the deadline")

		_, err = f.GetOrder(ctx, "o1")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var unknown *client.OutcomeUnknownError
		require.False(t, errors.As(err, &unknown), "a read has no unknown outcome")
	})
	t.Run("during an attempt", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		f := newFixture(t, busy, func(_ http.ResponseWriter, r *http.Request) {
			cancel()
			<-r.Context().Done()
		})
		_, err := f.CreateOrder(ctx, key, orderParams())
		requireUnknown(t, err, 2, context.Canceled)
	})
}

func TestDo_backoff(t *testing.T) {
	t.Parallel()
	script := slices.Repeat([]http.HandlerFunc{closeConnection}, 8)
	script[5] = respondProblem(503, "temporarily-unavailable", "same-key", "Retry-After", "7")
	var limits []time.Duration
	f := newFixtureWith(t, func(c *client.Config) { c.Backoff, c.MaxBackoff = time.Second, 10*time.Second }, append(script, respondCreated())...)
	f.SetRandom(func(limit time.Duration) time.Duration {
		limits = append(limits, limit)
		return limit / 4
	})
	_, err := f.CreateOrder(t.Context(), key, orderParams())
	require.NoError(t, err)
	require.Equal(t, []time.Duration{1e9, 2e9, 4e9, 8e9, 10e9, 10e9, 10e9, 10e9}, limits)
	require.Equal(t, []time.Duration{25e7, 5e8, 1e9, 2e9, 25e8, 95e8, 25e8, 25e8}, f.delays)
}

func TestResponse_retryAfter(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	for _, test := range []struct {
		value, date string
		want        time.Duration
	}{
		{"", "", 0},
		{"120", "", 2 * time.Minute},
		{"99999999999999999999999999", "", year},
		{"soon", "", 0},
		{"Fri, 20 Nov 2026 09:30:13 GMT", "Fri, 20 Nov 2026 09:30:00 GMT", 13 * time.Second},
		{"Fri, 20 Nov 2026 09:30:00 GMT", "Fri, 20 Nov 2026 09:30:13 GMT", 0},
		{"Fri, 20 Nov 2099 09:30:00 GMT", "Fri, 20 Nov 2026 09:30:13 GMT", year},
		{"Sun, 06 Nov 1994 08:49:37 GMT", "", 0},
	} {
		a := client.Response{Header: http.Header{"Retry-After": {test.value}, "Date": {test.date}}}
		require.Equal(t, test.want, a.RetryAfter(), "%q at %q", test.value, test.date)
	}
	withoutDate := client.Response{Header: http.Header{"Retry-After": {time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)}}}
	require.InDelta(t, time.Hour, withoutDate.RetryAfter(), float64(time.Minute))
}

func TestSend_oneAttempt(t *testing.T) {
	t.Parallel()
	f := newFixture(t, respondProblem(409, "idempotency-key-in-progress", "same-key", "Retry-After", "1"), closeConnection,
		respondCreated(), closeConnection)
	request := client.Request{Key: key, Path: "/v1/orders", Body: []byte(`{ "as" : "it is" }`)}
	got, err := f.Send(t.Context(), request)
	require.NoError(t, err)
	require.Equal(t, 409, got.Status)
	require.Equal(t, time.Second, got.RetryAfter())
	require.Equal(t, `{ "as" : "it is" }`, f.received()[0].body)

	// net/http would resend a request with a key when the reused connection breaks (R31, one call, one answer).
	_, err = f.Send(t.Context(), request)
	require.Error(t, err)
	require.Len(t, f.received(), 2)
	request.Body = nil
	_, err = f.Send(t.Context(), request)
	require.NoError(t, err)
	_, err = f.Send(t.Context(), request)
	require.Error(t, err)
	require.Len(t, f.received(), 4)
	require.Empty(t, f.delays)
}

func TestKey_invalid(t *testing.T) {
	t.Parallel()
	f := newFixture(t, respondCreated())
	for _, bad := range []client.Key{"", "too-short", "with a blank in it", "with-a-line-break\n", `"quoted-0123456789"`, client.Key(fmt.Sprintf("%0256d", 1)), "schlüssel-schlüssel"} {
		_, err := f.CreateOrder(t.Context(), bad, orderParams())
		require.ErrorIs(t, err, client.ErrInvalidKey, bad)
		_, err = f.Send(t.Context(), client.Request{Key: bad, Path: "/v1/orders"})
		require.ErrorIs(t, err, client.ErrInvalidKey, bad)
		_, err = f.GetKey(t.Context(), bad)
		require.ErrorIs(t, err, client.ErrInvalidKey, bad)
	}
	require.Empty(t, f.received())
	require.NotEqual(t, client.NewKey(), client.NewKey())
}

// A server that is not the API can neither hold a call longer than its limit, nor answer it.
func TestClient_foreignServer(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]struct {
		success int
		do      func(context.Context, *client.Client) error
	}{
		"a write": {http.StatusCreated, func(ctx context.Context, c *client.Client) error {
			_, err := c.CreateOrder(ctx, key, orderParams())
			return err
		}},
		"a read": {http.StatusOK, func(ctx context.Context, c *client.Client) error {
			_, err := c.ListOrders(ctx, client.OrderFilter{})
			return err
		}},
	} {
		for answer, respond := range foreigntest.Answers(t, call.success) {
			t.Run(name+", "+answer, func(t *testing.T) {
				t.Parallel()
				f := newFixtureWith(t, func(c *client.Config) { c.Timeout = 200 * time.Millisecond }, respond)
				ctx, cancel := context.WithCancel(t.Context())
				f.SetSleep(func(context.Context, time.Duration) error {
					cancel()
					return context.Canceled
				})
				start := time.Now()
				require.Error(t, call.do(ctx, f.Client))
				require.Less(t, time.Since(start), foreigntest.Held)
				require.Len(t, f.observed, 1)
				require.Error(t, f.observed[0].Err, "no response, whatever its status")
			})
		}
	}
}
