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

// Each request has one line, and each line these fields and no other: somebody
// reads them by name.
func TestOneLineForEachRequest(t *testing.T) {
	t.Parallel()
	provider := &trapdoor{}
	a := start(t, func(s *settings) { s.transport = provider })
	key, order := newKey(), body()
	sent := 0
	// line returns the line of a request, less what differs each time.
	line := func(send func(id edit) answer) map[string]any {
		sent++
		got := send(header("X-Request-Id", "request-"+strings.Repeat("x", sent)))
		id := got.header.Get("X-Request-Id")
		line := maps.Clone(a.log.await(t, map[string]any{"msg": "request", "request_id": id}))
		require.EqualValues(t, got.status, line["status"])
		require.Positive(t, line["duration"])
		require.Equal(t, "127.0.0.1", line["client_ip"])
		require.Equal(t, 1, strings.Count(a.log.String(), `"msg":"request","request_id":"`+id+`"`))
		for _, name := range []string{"time", "msg", "request_id", "duration", "client_ip", "status", "bytes"} {
			require.Contains(t, line, name)
			delete(line, name)
		}
		return line
	}
	create := func(key, body string, edits ...edit) func(edit) answer {
		return func(id edit) answer { return a.create(t, key, body, append(edits, id)...) }
	}
	get := func(path string, edits ...edit) func(edit) answer {
		return func(id edit) answer { return a.get(t, path, append(edits, id)...) }
	}

	post := map[string]any{"level": "INFO", "method": "POST", "route": "/v1/orders", "account_id": a.account.String()}
	plus := func(base map[string]any, fields ...any) map[string]any {
		fresh := maps.Clone(base)
		for i := 0; i < len(fields); i += 2 {
			fresh[fields[i].(string)] = fields[i+1]
		}
		return fresh
	}

	first := line(create(key, order))
	keyID := first["key_id"]
	require.Regexp(t, `^[0-9a-f-]{36}$`, keyID)
	ours := plus(post, "key_id", keyID)
	require.Equal(t, plus(ours, "outcome", "created", "from", "started", "to", "finished", "attempt", 1.0), first)
	require.Equal(t, plus(ours, "outcome", "replayed", "from", "finished", "to", "finished", "attempt", 1.0), line(create(key, order)))
	require.Equal(t, plus(ours, "outcome", "reused", "from", "finished", "to", "finished", "attempt", 1.0,
		"problem", "idempotency-key-reused"), line(create(key, body(with("currency", "eur")))))
	require.Equal(t, plus(ours, "outcome", "refused", "problem", "malformed-request"), line(create(key, "[]")))
	require.Equal(t, plus(post, "problem", "idempotency-key-missing"), line(create("", order)))
	require.Equal(t, plus(post, "problem", "idempotency-key-invalid"), line(create("short", order)))

	invalid := line(create(newKey(), "{}"))
	require.NotEqual(t, keyID, invalid["key_id"])
	require.Equal(t, plus(post, "key_id", invalid["key_id"], "outcome", "refused", "problem", "validation-failed"), invalid)

	down := a.stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Endpoint: confirmEndpoint, Times: stripetest.Always})
	blind := a.stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Endpoint: readEndpoint, Times: stripetest.Always})
	key = newKey()
	unknown := line(create(key, order))
	require.Contains(t, unknown["error"], "the outcome of the payment is not known yet: payments: unknown, status 503")
	ours = plus(post, "key_id", unknown["key_id"])
	require.Equal(t, plus(ours, "level", "WARN", "outcome", "retryable", "from", "started", "to", "charge_created", "attempt", 1.0,
		"problem", "payment-outcome-unknown", "error", unknown["error"]), unknown)
	down.Release()
	blind.Release()
	require.Equal(t, plus(ours, "outcome", "recovered", "from", "charge_created", "to", "finished", "attempt", 2.0), line(create(key, order)))

	held := a.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	key = newKey()
	running := a.createAsync(t, key, order)
	<-held.Reached()
	busy := line(create(key, order))
	require.Equal(t, plus(post, "key_id", busy["key_id"], "outcome", "in_progress", "from", "charge_created", "to", "charge_created", "attempt", 1.0,
		"problem", "idempotency-key-in-progress"), busy)
	held.Release()
	require.NoError(t, (<-running).err)

	provider.open.Store(true)
	panicked := line(create(newKey(), order))
	require.Equal(t, []string{"account_id", "error", "key_id", "level", "method", "problem", "route", "stack"}, slices.Sorted(maps.Keys(panicked)))
	require.Equal(t, "internal-error", panicked["problem"])
	require.Equal(t, "ERROR", panicked["level"])

	anonymous := header("Authorization")
	plain := map[string]any{"level": "INFO", "method": "GET"}
	require.Equal(t, plus(plain, "route", "/v1/orders", "account_id", a.account.String()), line(get("/v1/orders?limit=1")))
	require.Equal(t, plus(plain, "route", "/v1/orders/{id}", "account_id", a.account.String(), "problem", "not-found"), line(get("/v1/orders/x")))
	require.Equal(t, plus(plain, "route", "/v1/orders", "problem", "unauthorized"), line(get("/v1/orders", anonymous)))
	require.Equal(t, plus(plain, "route", "", "problem", "not-found"), line(get("/nothing", anonymous)))
	require.Equal(t, plus(plain, "route", "/healthz"), line(get("/healthz", anonymous)))
	require.Equal(t, plus(plain, "method", "HEAD", "route", "/problems/{slug}"), line(func(id edit) answer {
		return a.send(t, http.MethodHead, "/problems/not-found", "", id, anonymous)
	}))
	require.Equal(t, plus(plain, "method", "DELETE", "route", "", "problem", "method-not-allowed"), line(func(id edit) answer {
		return a.send(t, http.MethodDelete, "/healthz", "", id, anonymous)
	}))
}

// Every test looks for the secrets it sent when it ends; this one puts them in
// every place that could end in the log, and makes everything fail.
func TestNoSecretIsLogged(t *testing.T) {
	t.Parallel()
	a := start(t)
	secret := func(name string) string {
		value := "CANARY-" + name + "-0123456789"
		a.secrets.add(value)
		return value
	}
	order := body(
		with("email", secret("mail")+"@example.com"),
		with("metadata", map[string]any{secret("name"): secret("value")}),
		with("items", []any{map[string]any{"sku": secret("sku"), "description": secret("text"), "quantity": 1, "unit_amount": 100}}),
	)
	for _, fault := range []stripetest.Fault{
		stripetest.Unauthorized, stripetest.RateLimit, stripetest.KeyInUse, stripetest.LockTimeout, stripetest.ErrorBefore,
		stripetest.ErrorAfter, stripetest.CloseAfter, stripetest.CutBody, stripetest.BadGateway,
	} {
		for _, endpoint := range []string{createEndpoint, confirmEndpoint, readEndpoint} {
			injected := a.stripe.Inject(stripetest.Rule{Fault: fault, Endpoint: endpoint, Times: stripetest.Always})
			key := newKey()
			a.create(t, key, order)
			a.create(t, `"`+key+`"`, order)
			injected.Release()
			a.create(t, key, order)
		}
	}
	for _, card := range []string{
		"pm_card_visa_chargeDeclined", "pm_card_authenticationRequired", "pm_card_nobody", stripetest.ProcessingCard,
	} {
		a.create(t, newKey(), body(with("payment_method", card)))
	}
	a.create(t, secret("key"), order)
	a.create(t, secret("key")+" with blanks", order)
	a.create(t, newKey(), `{"`+secret("member")+`":"`+secret("member's value")+`"}`)
	a.create(t, newKey(), `{"`+secret("member")+`":1,"`+secret("member")+`":2}`)
	a.create(t, newKey(), secret("body"))
	a.create(t, newKey(), order, header("Content-Type", "text/"+secret("type")))
	a.create(t, newKey(), order, header("Authorization", "Bearer ok_"+secret("credential")))
	a.create(t, newKey(), order, header("Authorization", "Basic "+secret("credential")))
	a.create(t, newKey(), order, header("Cookie", secret("cookie")), header("X-Api-Key", secret("header")), header("User-Agent", secret("agent")))
	a.get(t, "/v1/orders?after="+secret("query")+"&key="+secret("query"))
	a.get(t, "/v1/orders/"+secret("path"))
	a.get(t, "/problems/"+secret("path"))
	a.get(t, "/"+secret("path"))
	w := a.dial(t)
	w.write("GET / HTTP/1.1\r\nHost: orders\r\n" + secret("no header") + "\r\n\r\n")
	require.Equal(t, "net/http", w.answer().slug())

	a.exec(t, "ALTER TABLE orders RENAME TO gone")
	a.create(t, newKey(), order)
	a.exec(t, "ALTER TABLE gone RENAME TO orders")
	a.exec(t, "ALTER TABLE orders ADD CHECK (email = 'nobody')  NOT VALID")
	require.Equal(t, http.StatusInternalServerError, a.create(t, newKey(), order).status)

	require.Greater(t, strings.Count(a.log.String(), "\n"), 200)
	require.Empty(t, a.secrets.in(a.log.String()))
	require.NotEmpty(t, a.secrets.in("a line with "+a.apiKey), "the search finds what there is")
}
