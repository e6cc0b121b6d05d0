package api_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

func (f *fixture) requestLine(t *testing.T, got response) map[string]any {
	t.Helper()
	id := got.header.Get("X-Request-Id")
	line := maps.Clone(f.log.await(t, map[string]any{"msg": "request", "request_id": id}))
	require.EqualValues(t, got.status, line["status"])
	require.Positive(t, line["duration_seconds"])
	require.Equal(t, 1, strings.Count(f.log.String(), `"msg":"request","request_id":"`+id+`"`))
	for _, name := range []string{"time", "msg", "request_id", "duration_seconds", "status", "bytes"} {
		require.Contains(t, line, name)
		delete(line, name)
	}
	return line
}

func withFields(base map[string]any, fields ...any) map[string]any {
	fresh := maps.Clone(base)
	for i := 0; i < len(fields); i += 2 {
		fresh[fields[i].(string)] = fields[i+1]
	}
	return fresh
}

func TestLog_requestLine(t *testing.T) {
	t.Parallel()
	provider := &panickingTransport{}
	f := newFixture(t, func(s *options) { s.transport = provider })
	key, order := newKey(), orderBody()
	sent := 0
	line := func(send func(id requestEdit) response) map[string]any {
		sent++
		return f.requestLine(t, send(header("X-Request-Id", "request-"+strings.Repeat("x", sent))))
	}
	create := func(key, body string, edits ...requestEdit) func(requestEdit) response {
		return func(id requestEdit) response { return f.create(t, key, body, append(edits, id)...) }
	}
	get := func(path string, edits ...requestEdit) func(requestEdit) response {
		return func(id requestEdit) response { return f.get(t, path, append(edits, id)...) }
	}

	post := map[string]any{"level": "INFO", "method": "POST", "route": "/v1/orders", "account_id": f.Account.String()}
	plus := withFields

	first := line(create(key, order))
	keyID := first["key_id"]
	require.Regexp(t, `^[0-9a-f-]{36}$`, keyID)
	ours := plus(post, "key_id", keyID)
	require.Equal(t, plus(ours, "outcome", "created", "from", "started", "to", "finished", "attempt", 1.0), first)
	require.Equal(t, plus(ours, "outcome", "replayed", "from", "finished", "to", "finished", "attempt", 1.0), line(create(key, order)))
	require.Equal(t, plus(ours, "outcome", "reused", "from", "finished", "to", "finished", "attempt", 1.0,
		"problem", "idempotency-key-reused"), line(create(key, orderBody(withMember("currency", "eur")))))
	require.Equal(t, plus(ours, "outcome", "rejected", "problem", "malformed-request"), line(create(key, "[]")))
	require.Equal(t, plus(post, "problem", "idempotency-key-missing"), line(create("", order)))

	down := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Endpoint: confirmEndpoint, Times: stripetest.Always})
	blind := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Endpoint: readEndpoint, Times: stripetest.Always})
	key = newKey()
	unknown := line(create(key, order))
	require.Contains(t, unknown["error"], "the outcome is not known yet: payments: unknown, status 503")
	ours = plus(post, "key_id", unknown["key_id"])
	require.Equal(t, plus(ours, "level", "WARN", "outcome", "retryable", "from", "started", "to", "charge_created", "attempt", 1.0,
		"problem", "payment-outcome-unknown", "error", unknown["error"]), unknown)
	down.Release()
	blind.Release()
	require.Equal(t, plus(ours, "outcome", "recovered", "from", "charge_created", "to", "finished", "attempt", 2.0), line(create(key, order)))

	held := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	key = newKey()
	running := f.createAsync(t, key, order)
	<-held.Reached()
	busy := line(create(key, order))
	require.Equal(t, plus(post, "key_id", busy["key_id"], "outcome", "in_progress", "from", "charge_created", "to", "charge_created", "attempt", 1.0,
		"problem", "idempotency-key-in-progress"), busy)
	held.Release()
	require.NoError(t, (<-running).err)

	provider.panics.Store(true)
	panicked := line(create(newKey(), order))
	require.Equal(t, []string{"account_id", "error", "key_id", "level", "method", "problem", "route", "stack"}, slices.Sorted(maps.Keys(panicked)))
	require.Equal(t, "ERROR", panicked["level"])

	anonymous := header("Authorization")
	plain := map[string]any{"level": "INFO", "method": "GET"}
	require.Equal(t, plus(plain, "route", "/v1/orders/{id}", "account_id", f.Account.String(), "problem", "not-found"), line(get("/v1/orders/x")))
	require.Equal(t, plus(plain, "route", "/v1/orders", "problem", "unauthorized"), line(get("/v1/orders", anonymous)))
	require.Equal(t, plus(plain, "route", "", "problem", "not-found"), line(get("/nothing", anonymous)))
	require.Equal(t, plus(plain, "method", "HEAD", "route", "/problems/{slug}"), line(func(id requestEdit) response {
		return f.send(t, http.MethodHead, "/problems/not-found", "", id, anonymous)
	}))
}

// Every fixture checks its log. This test sends secrets in all parts of a request.
func TestLog_noSecrets(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	secret := func(name string) string {
		value := "CANARY-" + name + "-0123456789"
		f.secrets.add(value)
		return value
	}
	order := orderBody(
		withMember("email", secret("mail")+"@example.com"),
		withMember("metadata", map[string]any{secret("name"): secret("value")}),
		withMember("items", []any{map[string]any{"sku": secret("sku"), "description": secret("text"), "quantity": 1, "unit_amount": 100}}),
	)
	for _, fault := range []stripetest.Fault{stripetest.Unauthorized, stripetest.LockTimeout, stripetest.ErrorAfter, stripetest.CloseAfter, stripetest.CutBody} {
		injected := f.Stripe.Inject(stripetest.Rule{Fault: fault, Times: stripetest.Always})
		key := newKey()
		f.create(t, `"`+key+`"`, order)
		injected.Release()
		f.create(t, key, order)
	}
	for _, card := range []string{
		"pm_card_visa_chargeDeclined", "pm_card_authenticationRequired", "pm_card_nobody", stripetest.ProcessingCard,
	} {
		f.create(t, newKey(), orderBody(withMember("payment_method", card)))
	}
	f.create(t, secret("key")+" with spaces", order)
	f.create(t, newKey(), `{"`+secret("member")+`":"`+secret("member's value")+`"}`)
	f.create(t, newKey(), secret("body"))
	f.create(t, newKey(), order, header("Content-Type", "text/"+secret("type")))
	f.create(t, newKey(), order, header("Authorization", "Bearer ok_"+secret("credential")))
	f.create(t, newKey(), order, header("Cookie", secret("cookie")), header("X-Api-Key", secret("header")), header("User-Agent", secret("agent")))
	f.get(t, "/v1/orders?after="+secret("query")+"&key="+secret("query"))
	f.get(t, "/v1/orders/"+secret("path"))
	f.get(t, "/problems/"+secret("path"))
	f.get(t, "/"+secret("path"))
	conn := f.dial(t)
	conn.write("GET / HTTP/1.1\r\nHost: orders\r\n" + secret("no header") + "\r\n\r\n")
	require.Equal(t, "net/http", conn.readResponse().slug())

	f.exec(t, "ALTER TABLE orders ADD CHECK (email = 'nobody')  NOT VALID")
	require.Equal(t, http.StatusInternalServerError, f.create(t, newKey(), order).status)

	require.Greater(t, strings.Count(f.log.String(), "\n"), 50)
	require.Empty(t, f.secrets.in(f.log.String()))
	require.NotEmpty(t, f.secrets.in("a line with "+f.apiKey), "the search works")
}
