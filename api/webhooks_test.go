package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments/stripetest"
)

const webhookPath = "/v1/webhooks/stripe"

func (f *fixture) signedEvent(t *testing.T, eventType string) (payload, signature string) {
	t.Helper()
	body, signature, err := f.Stripe.Event(orderstest.WebhookSecret, eventType, f.intentID(t))
	require.NoError(t, err)
	return string(body), signature
}

func (f *fixture) intentID(t *testing.T) string {
	t.Helper()
	var id string
	require.NoError(t, f.Pool.QueryRow(t.Context(), "SELECT payment_intent_id FROM orders ORDER BY created_at DESC LIMIT 1").Scan(&id))
	return id
}

func (f *fixture) deliver(t *testing.T, payload, signature string, edits ...requestEdit) response {
	t.Helper()
	return f.send(t, http.MethodPost, webhookPath, payload,
		append([]requestEdit{header("Authorization"), header("Stripe-Signature", signature)}, edits...)...)
}

func (f *fixture) deliverEvent(t *testing.T, eventType string) response {
	t.Helper()
	payload, signature := f.signedEvent(t, eventType)
	return f.deliver(t, payload, signature)
}

func (f *fixture) keyRows(t *testing.T) []string {
	t.Helper()
	rows, err := f.Pool.Query(t.Context(), "SELECT k::text FROM idempotency_keys k ORDER BY id")
	require.NoError(t, err)
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return keys
}

func (f *fixture) createUnknownPaid(t *testing.T) {
	t.Helper()
	require.Equal(t, http.StatusServiceUnavailable, f.create(t, newKey(), orderBody(withMember("payment_method", stripetest.ProcessingCard))).status)
	require.NoError(t, f.Stripe.Settle(f.intentID(t), true))
}

func requireReceived(t *testing.T, got response) {
	t.Helper()
	require.Equal(t, http.StatusOK, got.status, "%s", got.body)
	require.JSONEq(t, `{"received":true}`, string(got.body))
	require.NotContains(t, got.header, "Idempotency-Key")
}

func TestWebhook_finishesOrder(t *testing.T) {
	t.Parallel()
	provider := &panickingTransport{}
	f := newFixture(t, func(s *options) { s.transport = provider })
	key, order := newKey(), orderBody(withMember("payment_method", stripetest.ProcessingCard))
	require.Equal(t, http.StatusServiceUnavailable, f.create(t, key, order).status)

	requireReceived(t, f.deliverEvent(t, "payment_intent.processing"))
	tooEarly := f.deliverEvent(t, "payment_intent.succeeded")
	require.Equal(t, "payment-outcome-unknown", tooEarly.problem(t).slug())
	require.Empty(t, f.Stripe.MoneyMoved())

	require.NoError(t, f.Stripe.Settle(f.intentID(t), true))
	payload, signature := f.signedEvent(t, "payment_intent.succeeded")
	f.exec(t, "UPDATE idempotency_keys SET recovery_point = 'of_a_newer_version'")
	require.Equal(t, "temporarily-unavailable", f.deliver(t, payload, signature).problem(t).slug())
	f.exec(t, "UPDATE idempotency_keys SET recovery_point = 'charge_created'")
	provider.panics.Store(true)
	require.Equal(t, "internal-error", f.deliver(t, payload, signature).problem(t).slug())
	provider.panics.Store(false)
	requireReceived(t, f.deliver(t, payload, signature))
	for _, eventType := range []string{"payment_intent.payment_failed", "payment_intent.processing"} {
		requireReceived(t, f.deliverEvent(t, eventType))
	}
	line := f.log.await(t, map[string]any{"event_type": "payment_intent.succeeded", "outcome": "recovered"})
	require.Equal(t, []any{webhookPath, "charge_created", "finished"}, []any{line["route"], line["from"], line["to"]})
	require.Contains(t, line["event_id"], "evt_")
	got := f.create(t, key, order)
	require.Equal(t, http.StatusCreated, got.status)
	require.Equal(t, "true", got.header.Get("Idempotent-Replayed"))
	require.EqualValues(t, "paid", got.order(t).Status)
	f.requireOnePaidOrder(t)
}

// A run has read that the payment requires an action, and the customer approves it before the run
// has ended. No other event follows, so this one must not be lost.
func TestWebhook_approvedDuringRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t, limiterBounds(1, 100))
	key, order := newKey(), orderBody(withMember("payment_method", authenticatedCard))
	intent := actionOf(t, f.create(t, key, order)).PaymentIntentID
	held := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldResponse, Endpoint: readEndpoint})
	retry := f.createAsync(t, key, order)
	<-held.Reached()
	require.NoError(t, f.Stripe.Authenticate(intent, true))

	requireReceived(t, f.deliverEvent(t, "payment_intent.requires_action"))
	payload, signature := f.signedEvent(t, "payment_intent.succeeded")
	succeeded := f.sendAsync(f.request(t, http.MethodPost, webhookPath, payload,
		header("Authorization"), header("Stripe-Signature", signature), header("X-Request-Id", "the-approval")))
	require.Eventually(t, func() bool { return f.Engine.Waiters() == 1 || len(succeeded) > 0 }, stepTimeout, time.Millisecond)
	held.Release()
	actionOf(t, receive(t, retry))
	requireReceived(t, receive(t, succeeded))
	require.Equal(t, "recovered", f.log.await(t, map[string]any{"request_id": "the-approval"})["outcome"])
	require.Equal(t, map[string]int{"idempotency_keys": 1, "orders": 1, "refunds": 0, "audit_records": 4, "staged_jobs": 1}, f.rowCounts(t))
	require.Equal(t, map[string]int64{"usd": 4300}, f.Stripe.MoneyMoved())
	require.Contains(t, string(f.get(t, f.getKey(t, key).keyStatus(t).Order.Href).body), `"status":"paid"`)
}

func signatureHeader(secret, payload string, at time.Time) string {
	return fmt.Sprintf("t=%d,v1=%s", at.Unix(), stripetest.Sign(secret, []byte(payload), at))
}

func TestWebhook_rejected(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.createUnknownPaid(t)
	payload, signature := f.signedEvent(t, "payment_intent.succeeded")
	thin := `{"id":"evt_1","object":"v2.core.event","type":"v1.payment_intent.succeeded","created":"2026-09-29T01:38:41.385Z","livemode":false,` +
		`"related_object":{"id":"pi_1","type":"payment_intent","url":"/v1/payment_intents/pi_1"}}`
	now := time.Now()
	before, requests := f.keyRows(t), len(f.Stripe.Requests())
	for name, test := range map[string]struct {
		payload   string
		signature string
		edits     []requestEdit
		slug      string
	}{
		"not signed":         {payload, "", []requestEdit{header("Stripe-Signature")}, "malformed-request"},
		"API key instead":    {payload, "", []requestEdit{header("Stripe-Signature"), header("Authorization", "Bearer "+f.apiKey)}, "malformed-request"},
		"signed, no event":   {"[]", signatureHeader(orderstest.WebhookSecret, "[]", now), nil, "malformed-request"},
		"signed, thin":       {thin, signatureHeader(orderstest.WebhookSecret, thin, now), nil, "malformed-request"},
		"too large, chunked": {payload + strings.Repeat(" ", 1<<20), signature, []requestEdit{chunked}, "too-large"},
		"text":               {payload, signature, []requestEdit{header("Content-Type", "text/plain")}, "unsupported-media-type"},
	} {
		got := f.deliver(t, test.payload, test.signature, test.edits...).problem(t)
		require.Equal(t, test.slug, got.slug(), name)
		require.Equal(t, strings.HasPrefix(name, "signed, "), strings.HasPrefix(got.Detail, "The signature is valid"), "%s: %s", name, got.Detail)
		require.Equal(t, strings.HasPrefix(name, "signed, "), strings.Contains(got.Detail, "thin event"), name)
	}
	require.Equal(t, before, f.keyRows(t))
	require.Len(t, f.Stripe.Requests(), requests, "no call to the provider")

	foreign := strings.ReplaceAll(payload, "account_id", "their_id")
	ignored := f.deliver(t, foreign, signatureHeader(orderstest.WebhookSecret, foreign, now))
	requireReceived(t, ignored)
	require.Equal(t, "ignored", f.requestLine(t, ignored)["outcome"])

	largest := payload + strings.Repeat(" ", 256<<10-len(payload))
	requireReceived(t, f.deliver(t, largest, signatureHeader(orderstest.WebhookSecret, largest, now), chunked))
	f.requireOnePaidOrder(t)
}

func TestWebhook_noSecret(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(s *options) { s.noWebhook = true })
	f.createUnknownPaid(t)
	before := f.keyRows(t)
	require.Equal(t, "not-found", f.deliverEvent(t, "payment_intent.succeeded").problem(t).slug(), "signed with the empty secret")
	require.Equal(t, before, f.keyRows(t))
}
