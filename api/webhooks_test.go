package api_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

const webhookPath = "/v1/webhooks/stripe"

// event is a delivery about the newest order's payment, as it is now.
func (a *app) event(t *testing.T, eventType string) (payload, signature string) {
	t.Helper()
	body, signature, err := a.stripe.Event(a.webhook, eventType, a.intentID(t))
	require.NoError(t, err)
	return string(body), signature
}

func (a *app) intentID(t *testing.T) string {
	t.Helper()
	var id string
	require.NoError(t, a.pool.QueryRow(t.Context(), "SELECT payment_intent_id FROM orders ORDER BY created_at DESC LIMIT 1").Scan(&id))
	return id
}

// deliver sends an event as Stripe does, which has no API key.
func (a *app) deliver(t *testing.T, payload, signature string, edits ...edit) answer {
	t.Helper()
	return a.send(t, http.MethodPost, webhookPath, payload,
		append([]edit{header("Authorization"), header("Stripe-Signature", signature)}, edits...)...)
}

// tell delivers an event about the newest order's payment.
func (a *app) tell(t *testing.T, eventType string) answer {
	t.Helper()
	payload, signature := a.event(t, eventType)
	return a.deliver(t, payload, signature)
}

// keys is every byte of the keys.
func (a *app) keys(t *testing.T) []string {
	t.Helper()
	rows, err := a.pool.Query(t.Context(), "SELECT k::text FROM idempotency_keys k ORDER BY id")
	require.NoError(t, err)
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return keys
}

func requireReceived(t *testing.T, got answer) {
	t.Helper()
	require.Equal(t, http.StatusOK, got.status, "%s", got.body)
	require.JSONEq(t, `{"received":true}`, string(got.body))
	require.NotContains(t, got.header, "Idempotency-Key")
}

// The client has gone away, and the provider decides.
func TestAnEventFinishesAnOrder(t *testing.T) {
	t.Parallel()
	for name, paid := range map[string]bool{"paid": true, "declined": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := start(t)
			key, order := newKey(), body(with("payment_method", stripetest.ProcessingCard))
			require.Equal(t, http.StatusServiceUnavailable, a.create(t, key, order).status)

			requireReceived(t, a.tell(t, "payment_intent.processing")) // true, and no reason to deliver it again
			tooEarly := a.tell(t, "payment_intent.succeeded")
			require.Equal(t, "payment-outcome-unknown", tooEarly.problem(t).slug())
			require.Equal(t, "30", tooEarly.header.Get("Retry-After"))
			require.Empty(t, a.stripe.MoneyMoved())
			require.Zero(t, a.rows(t)["staged_jobs"])

			require.NoError(t, a.stripe.Settle(a.intentID(t), paid))
			for _, eventType := range []string{"payment_intent.succeeded", "payment_intent.payment_failed", "payment_intent.processing"} {
				requireReceived(t, a.tell(t, eventType)) // the first one, whichever it is, does it
			}
			got := a.create(t, key, order)
			require.Equal(t, "true", got.header.Get("Idempotent-Replayed"))
			if paid {
				require.Equal(t, http.StatusCreated, got.status)
				require.EqualValues(t, "paid", got.order(t).Status)
				a.requireOnePaidOrder(t)
				return
			}
			require.Equal(t, "payment-declined", got.problem(t).slug())
			require.EqualValues(t, "payment_failed", a.get(t, "/v1/orders/"+got.problem(t).OrderID).order(t).Status)
			require.Empty(t, a.stripe.MoneyMoved())
			require.Zero(t, a.rows(t)["staged_jobs"])
		})
	}
}

// signed is the header of a payload sent at the given time.
func signed(secret, payload string, at time.Time) string {
	return fmt.Sprintf("t=%d,v1=%s", at.Unix(), stripetest.Sign(secret, []byte(payload), at))
}

// halfSent begins so many deliveries that have no valid signature, and waits until
// the server reads their bodies.
func (a *app) halfSent(t *testing.T, n int) []net.Conn {
	t.Helper()
	conns := make([]net.Conn, n)
	for i := range conns {
		conn, err := net.Dial("tcp", strings.TrimPrefix(a.url, "http://"))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: api\r\nContent-Type: application/json\r\n"+
			"Content-Length: 3000\r\nExpect: 100-continue\r\n\r\n", webhookPath)
		require.NoError(t, err)
		line, err := bufio.NewReader(conn).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "HTTP/1.1 100 Continue\r\n", line)
		conns[i] = conn
	}
	return conns
}

// Bodies that do not arrive keep no event away (R25).
func TestWebhook_halfSentBodies(t *testing.T) {
	t.Parallel()
	a := start(t)
	require.Equal(t, http.StatusServiceUnavailable, a.create(t, newKey(), body(with("payment_method", stripetest.ProcessingCard))).status)
	require.NoError(t, a.stripe.Settle(a.intentID(t), true))
	a.halfSent(t, 100)
	requireReceived(t, a.tell(t, "payment_intent.succeeded"))
	a.requireOnePaidOrder(t)
}

// At most 100 bodies are in memory: the one that takes the longest is given up.
func TestWebhook_manyHalfSentBodies(t *testing.T) {
	t.Parallel()
	a := start(t)
	require.Equal(t, http.StatusServiceUnavailable, a.create(t, newKey(), body(with("payment_method", stripetest.ProcessingCard))).status)
	conns := a.halfSent(t, 101)
	response, err := io.ReadAll(conns[0])
	require.NoError(t, err)
	require.Contains(t, string(response), "HTTP/1.1 503 Service Unavailable\r\n")
	require.Contains(t, string(response), "The body ended early.")
	requireReceived(t, a.tell(t, "payment_intent.processing"))
	for _, conn := range conns[2:] {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Millisecond)))
		_, err := conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, "still read")
	}
}

func TestDeliveriesThatAreRefused(t *testing.T) {
	t.Parallel()
	a := start(t)
	require.Equal(t, http.StatusServiceUnavailable, a.create(t, newKey(), body(with("payment_method", stripetest.ProcessingCard))).status)
	require.NoError(t, a.stripe.Settle(a.intentID(t), true))
	payload, signature := a.event(t, "payment_intent.succeeded")
	now := time.Now()
	before, requests := a.keys(t), len(a.stripe.Requests())
	for name, test := range map[string]struct {
		payload   string
		signature string
		edits     []edit
		slug      string
	}{
		"not signed":                   {payload, "", []edit{header("Stripe-Signature")}, "malformed-request"},
		"with an API key instead":      {payload, "", []edit{header("Stripe-Signature"), header("Authorization", "Bearer "+a.apiKey)}, "malformed-request"},
		"signed with another secret":   {payload, signed("whsec_another", payload, now), nil, "malformed-request"},
		"signed with no secret":        {payload, signed("", payload, now), nil, "malformed-request"},
		"signed by an old scheme":      {payload, strings.Replace(signature, "v1=", "v0=", 1), nil, "malformed-request"},
		"signed 301 seconds ago":       {payload, signed(a.webhook, payload, now.Add(-301*time.Second)), nil, "malformed-request"},
		"signed ten minutes ahead":     {payload, signed(a.webhook, payload, now.Add(10*time.Minute)), nil, "malformed-request"},
		"one byte changed":             {strings.Replace(payload, "4300", "4301", 1), signature, nil, "malformed-request"},
		"no event, signed":             {"[]", signed(a.webhook, "[]", now), nil, "malformed-request"},
		"of a megabyte":                {payload + strings.Repeat(" ", 1<<20), signature, nil, "too-large"},
		"of a megabyte, length untold": {payload + strings.Repeat(" ", 1<<20), signature, []edit{chunked}, "too-large"},
		"as text":                      {payload, signature, []edit{header("Content-Type", "text/plain")}, "unsupported-media-type"},
		"compressed":                   {payload, signature, []edit{header("Content-Encoding", "gzip")}, "unsupported-media-type"},
	} {
		require.Equal(t, test.slug, a.deliver(t, test.payload, test.signature, test.edits...).problem(t).slug(), name)
	}
	require.Equal(t, before, a.keys(t))
	require.Len(t, a.stripe.Requests(), requests, "nobody was asked")

	requireReceived(t, a.deliver(t, payload, signature))
	a.requireOnePaidOrder(t)
}

func TestDeliveriesThatAreTaken(t *testing.T) {
	t.Parallel()
	a := start(t)
	require.Equal(t, http.StatusCreated, a.create(t, newKey(), body()).status)
	payload, signature := a.event(t, "payment_intent.succeeded")
	now := time.Now()
	before := a.rows(t)
	limit := payload + strings.Repeat(" ", 256<<10-len(payload))
	for name, test := range map[string]struct {
		payload   string
		signature string
		edits     []edit
	}{
		"once":                         {payload, signature, nil},
		"twice":                        {payload, signature, nil},
		"while the secret is rolled":   {payload, signature + ",v1=" + stripetest.Sign("whsec_another", []byte(payload), now), nil},
		"late":                         {payload, signed(a.webhook, payload, now.Add(-4*time.Minute)), nil},
		"in chunks":                    {payload, signature, []edit{chunked}},
		"with a charset":               {payload, signature, []edit{header("Content-Type", "application/json; charset=utf-8")}},
		"with a key, which is ignored": {payload, signature, []edit{header("Idempotency-Key", newKey())}},
		"as large as can be":           {limit, signed(a.webhook, limit, now), nil},
	} {
		got := a.deliver(t, test.payload, test.signature, test.edits...)
		requireReceived(t, got)
		require.Empty(t, got.header.Get("Idempotent-Replayed"), name)
	}
	require.Equal(t, before, a.rows(t))
	a.requireOnePaidOrder(t)
}

// What the contract shows is what is answered as it says.
func TestExamplesOfEventsAreReceived(t *testing.T) {
	t.Parallel()
	a := start(t)
	c, err := loadContract()
	require.NoError(t, err)
	examples := c.doc.Paths.Value(webhookPath).Post.RequestBody.Value.Content.Get("application/json").Examples
	require.Len(t, examples, 3)
	for _, example := range examples {
		payload, err := json.Marshal(example.Value.Value)
		require.NoError(t, err)
		requireReceived(t, a.deliver(t, string(payload), signed(a.webhook, string(payload), time.Now())))
	}
	require.Empty(t, a.stripe.Requests())
}

func TestWithoutASecretTheWebhookIsOff(t *testing.T) {
	t.Parallel()
	a := start(t, func(s *settings) { s.noWebhook = true })
	require.Equal(t, http.StatusServiceUnavailable, a.create(t, newKey(), body(with("payment_method", stripetest.ProcessingCard))).status)
	require.NoError(t, a.stripe.Settle(a.intentID(t), true))
	before := a.keys(t)
	require.Equal(t, "not-found", a.tell(t, "payment_intent.succeeded").problem(t).slug(), "signed with the empty secret")
	require.Equal(t, before, a.keys(t))
}

// The provider delivers again what failed here, and then it works.
func TestEventsThatFail(t *testing.T) {
	t.Parallel()
	provider := &trapdoor{}
	a := start(t, func(s *settings) { s.transport = provider })
	require.Equal(t, http.StatusServiceUnavailable, a.create(t, newKey(), body(with("payment_method", stripetest.ProcessingCard))).status)
	require.NoError(t, a.stripe.Settle(a.intentID(t), true))
	payload, signature := a.event(t, "payment_intent.succeeded")
	for _, failure := range []struct{ slug, cause, remedy string }{
		{
			"temporarily-unavailable",
			"UPDATE idempotency_keys SET recovery_point = 'of_a_newer_version'",
			"UPDATE idempotency_keys SET recovery_point = 'charge_created'",
		},
		{
			"internal-error",
			"ALTER TABLE idempotency_keys RENAME TO gone",
			"ALTER TABLE gone RENAME TO idempotency_keys",
		},
	} {
		a.exec(t, failure.cause)
		require.Equal(t, failure.slug, a.deliver(t, payload, signature).problem(t).slug())
		a.exec(t, failure.remedy)
	}
	provider.open.Store(true)
	require.Equal(t, "internal-error", a.deliver(t, payload, signature).problem(t).slug())
	provider.open.Store(false)
	requireReceived(t, a.deliver(t, payload, signature))
	a.requireOnePaidOrder(t)
}

// The line of a delivery says which event it was and which key it brought on, and
// nothing else of what is in it.
func TestOneLineForEachDelivery(t *testing.T) {
	t.Parallel()
	a := start(t)
	line := func(payload, signature string) map[string]any {
		got := a.deliver(t, payload, signature)
		line := maps.Clone(a.log.await(t, map[string]any{"msg": "request", "request_id": got.header.Get("X-Request-Id")}))
		for _, name := range []string{"time", "msg", "request_id", "duration", "client_ip", "status", "bytes", "method"} {
			require.Contains(t, line, name)
			delete(line, name)
		}
		return line
	}
	base := map[string]any{"level": "INFO", "route": webhookPath}
	plus := func(fields ...any) map[string]any {
		fresh := maps.Clone(base)
		for i := 0; i < len(fields); i += 2 {
			fresh[fields[i].(string)] = fields[i+1]
		}
		return fresh
	}
	name := func(payload string) string {
		var event struct{ ID string }
		require.NoError(t, json.Unmarshal([]byte(payload), &event))
		return event.ID
	}

	object := map[string]any{"object": "customer", "id": "cus_1", "email": email, "name": "CANARY"}
	other, signature := stripetest.SignedEvent(a.webhook, "customer.created", object, time.Now())
	require.Equal(t, plus("event_id", name(string(other)), "event_type", "customer.created", "outcome", "ignored"), line(string(other), signature))
	require.Equal(t, plus("problem", "malformed-request"), line(string(other), ""))

	require.Equal(t, http.StatusServiceUnavailable, a.create(t, newKey(), body(with("payment_method", stripetest.ProcessingCard))).status)
	var keyID string
	require.NoError(t, a.pool.QueryRow(t.Context(), "SELECT id FROM idempotency_keys").Scan(&keyID))
	payload, signature := a.event(t, "payment_intent.succeeded")
	base = plus("event_id", name(payload), "event_type", "payment_intent.succeeded", "key_id", keyID)
	unfinished := line(payload, signature)
	require.Contains(t, unfinished["error"], "the outcome of the payment is not known yet")
	require.Equal(t, plus("level", "WARN", "outcome", "retryable", "from", "charge_created", "to", "charge_created", "attempt", 2.0,
		"problem", "payment-outcome-unknown", "error", unfinished["error"]), unfinished)

	a.exec(t, "UPDATE idempotency_keys SET locked_at = now()")
	require.Equal(t, plus("outcome", "ignored"), line(payload, signature), "somebody is at it")
	a.exec(t, "UPDATE idempotency_keys SET locked_at = NULL")

	require.NoError(t, a.stripe.Settle(a.intentID(t), true))
	require.Equal(t, plus("outcome", "recovered", "from", "charge_created", "to", "finished", "attempt", 3.0), line(payload, signature))
	require.Equal(t, plus("outcome", "replayed", "from", "finished", "to", "finished", "attempt", 3.0), line(payload, signature))
}
