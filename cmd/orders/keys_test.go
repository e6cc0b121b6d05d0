package main_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/programtest"
)

func (f *fixture) account() uuid.UUID {
	f.t.Helper()
	var id uuid.UUID
	require.NoError(f.t, f.pool.QueryRow(f.t.Context(), "SELECT id FROM accounts").Scan(&id))
	return id
}

// quiet is an environment without access to the provider and without a log.
func (f *fixture) quiet() []string {
	return f.with("STRIPE_SECRET_KEY=", "STRIPE_API_BASE=", "LOG_LEVEL=error")
}

func (f *fixture) keys(args ...string) string {
	f.t.Helper()
	stdout, stderr := programtest.Succeed(f.t, f.quiet(), append([]string{"keys"}, args...)...)
	require.Empty(f.t, stderr)
	return stdout
}

// The list is empty only if no key is unfinished, because operators wait for that.
func TestKeysList(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.createPaidOrder("a-finished-order-1")
	require.Regexp(t, `^KEY +ACCOUNT +OPERATION +RECOVERY POINT +STATE +RUNS +CREATED +LAST RUN +LAST ERROR\n$`, f.keys("list"))
	wants := []struct{ state, columns string }{
		{"abandoned", "last_error = 'no answer'"},
		{"waiting", "updated_at = now()"},
		{"requires_action", "action_required_at = now()"},
		{"in_progress", "locked_at = now(), updated_at = now()"},
	}
	for _, want := range wants {
		f.abandon("unfinished-order-" + want.state)
	}
	for i, want := range wants {
		key := "unfinished-order-" + want.state
		f.exec("UPDATE idempotency_keys SET created_at = now() + $2::int * interval '1 minute', "+want.columns+" WHERE idempotency_key = $1", key, i)
	}
	stdout := f.keys("list")
	table := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	require.Len(t, table, 1+len(wants))
	for i, want := range wants {
		id := idempotency.KeyID(f.account(), idempotency.Key("unfinished-order-"+want.state)).String()
		require.Regexp(t, "^"+id+"  "+f.account().String()+`  create_order  charge_created  `+want.state+` +1     20`, table[i+1], "oldest first")
	}
	require.Contains(t, table[1], "no answer")
	require.NotContains(t, stdout, "unfinished-order", "the list contains no client keys")
}

// The name of anything that a customer, a client or the provider has shows the same history.
func TestKeysShow(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const key, reference = "an-order-with-names", "basket 4711"
	a := f.serve(f.environ, "--shutdown-delay", "0")
	rejecting := f.rejectConfirms()
	body := strings.Replace(programtest.Tea, "{", `{"reference":"`+reference+`",`, 1)
	order := func() int {
		return a.MustDo(http.MethodPost, "/v1/orders", body, http.Header{"Idempotency-Key": {key}}).Status
	}
	require.Equal(t, http.StatusServiceUnavailable, order())
	account := f.account()
	id := idempotency.DeriveID("order", account, key).String()
	keyID := idempotency.KeyID(account, key).String()
	f.exec("UPDATE idempotency_keys SET locked_at = now() + interval '1 hour'")
	history := f.keys("show", keyID)
	for _, line := range []string{
		"key +" + keyID,
		"account +" + account.String(),
		"Idempotency-Key +" + key,
		"operation +create_order",
		"recovery point +charge_created",
		"claimed +20[0-9: -]{17}",
		"run 1, the last one +20[0-9: -]{17}",
		"clock +a time of this key is in the future: .*", // (R8, the database's clock)
		"last error +the payment provider is unavailable: .*",
		"order +" + id + ", at /v1/orders/" + id,
		`20[0-9: -]{17} +order\.created \{"amount": ?2500, "api_key": ?"` + f.apiKey[:8] + `", "currency": ?"usd"\}`,
		`20[0-9: -]{17} +order\.charge_created \{"api_key": ?"\w{8}", "payment_intent_id": ?"pi_[0-9A-Za-z]+"\}`,
	} {
		require.Regexp(t, "(?m)^"+line+"$", history)
	}
	require.Less(t, strings.Index(history, "order.created"), strings.Index(history, "order.charge_created"))
	require.Equal(t, history, f.keys("show", key))
	require.Equal(t, "orders: nothing has this id, reference, provider's id or email address\n",
		programtest.Fail(t, f.quiet(), "keys", "show", "an-unused-key-0001"))

	f.exec("UPDATE idempotency_keys SET locked_at = NULL")
	rejecting.Release()
	require.Equal(t, http.StatusCreated, order())
	a.Stop()
	var intent string
	require.NoError(t, f.pool.QueryRow(t.Context(), "SELECT payment_intent_id FROM orders").Scan(&intent))
	f.exec(`UPDATE orders SET disputes = '[{"id": "dp_other"}, {"id": "dp_of_this_order"}]'`)
	want := f.keys("show", id)
	require.Regexp(t, `(?m)^found +order `+id+`, paid$`, want)
	require.Regexp(t, `(?m)^finished +20.{17}, response 201 stored$`, want)
	for _, name := range []string{reference, intent, "dp_of_this_order"} {
		require.Equal(t, want, f.keys("show", name), name)
	}

	f.exec("UPDATE idempotency_keys SET finished_at = now() - interval '80 hours'")
	programtest.Succeed(t, f.quiet(), "reaper")
	for _, name := range []string{id, reference, intent, key} {
		history := f.keys("show", name)
		require.Regexp(t, `(?m)^state +expired$`, history, name)
		require.Regexp(t, `(?m)^20.{17} +order\.paid `, history, name)
	}

	// Another account's key with the name of this order hides nothing.
	b := f.serve(f.environ, "--shutdown-delay", "0")
	b.Key = createAccount(t, f.environ)
	require.Equal(t, http.StatusCreated, b.MustDo(http.MethodPost, "/v1/orders", programtest.Tea, http.Header{"Idempotency-Key": {id}}).Status)
	b.Stop()
	stderr := programtest.Fail(t, f.quiet(), "keys", "show", id)
	require.Regexp(t, `(?m)^  `+keyID+`  account `+account.String()+`  20[0-9-]{8} [0-9:]{8}  order `+id+`, paid$`, stderr)
}

// "Was she charged?" An email address shows her order, or lists her orders, the newest first.
func TestKeysShow_email(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := func(key, email, card string) string {
		body := strings.NewReplacer("ada@example.com", email, "pm_card_visa", card).Replace(programtest.Tea)
		f.shared().MustOrder(key, body)
		return idempotency.DeriveID("order", f.account(), idempotency.Key(key)).String()
	}
	const visa, declined = "pm_card_visa", "pm_card_visa_chargeDeclined"
	first, second := order("an-order-of-ada-1", "Ada@example.com", declined), order("an-order-of-ada-2", "ada@example.com", visa)
	other := order("an-order-of-grace", "grace@example.com", visa)

	want := f.keys("show", other)
	require.Regexp(t, `(?m)^charged +25\.00 USD`, want)
	require.Equal(t, want, f.keys("show", "grace@example.com"))
	stderr := programtest.Fail(t, f.with("LOG_LEVEL=debug"), "keys", "show", "ADA@example.com")
	require.Regexp(t, `orders: these match, the newest first: give the id of one
  [0-9a-f-]{36}  account [0-9a-f-]{36}  20[0-9-]{8} [0-9:]{8}  order `+second+`, paid
  [0-9a-f-]{36}  account [0-9a-f-]{36}  20[0-9-]{8} [0-9:]{8}  order `+first+`, payment_failed
$`, stderr)
	require.NotContains(t, strings.ToLower(stderr), "ada@example.com")

	// An order that has lost its key hides no other.
	f.exec("DELETE FROM idempotency_keys WHERE id = $1", idempotency.KeyID(f.account(), "an-order-of-ada-1"))
	stderr = programtest.Fail(t, f.quiet(), "keys", "show", "ada@example.com")
	require.Regexp(t, `order `+second+`, paid
  order `+first+`, payment_failed, of account [0-9a-f-]{36}: the row of its key is gone
$`, stderr)

	f.exec(`
INSERT INTO orders (account_id, id, idempotency_key, email, currency, amount, items, metadata, payment_method, status, created_at, failure_code, decline_code)
SELECT account_id, gen_random_uuid(), 'order-' || n, email, currency, amount, items, metadata, payment_method, status, created_at, failure_code, decline_code
  FROM orders, generate_series(1, 60) AS n WHERE id = $1`, first)
	stderr = programtest.Fail(t, f.quiet(), "keys", "show", "ada@example.com")
	require.Equal(t, 61, strings.Count(stderr, "is gone"), "all are listed, because each is erased")
}

func TestKeysRetry_andResolve(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	mine := f.account()
	const shared = "a-key-of-two-accounts"
	a := f.serve(f.environ, "--shutdown-delay", "0")
	f.abandonAt(a, shared)
	a.Key = createAccount(t, f.environ)
	id := idempotency.KeyID(mine, shared).String()
	f.abandonAt(a, shared)
	f.abandonAt(a, id) // does not hide the key with this id
	a.Stop()
	require.Contains(t, programtest.Fail(t, f.with("LOG_LEVEL=error"), "keys", "resolve", shared, "--reason", "a test"), "these match")
	rejecting := f.rejectConfirms()
	stderr := programtest.Fail(t, f.environ, "keys", "retry", id, "--reason", "Stripe is back")
	rejecting.Release()
	require.Regexp(t, `(?m)^orders: key `+id+` is still unfinished, at charge_created: the outcome is not known yet: `, stderr)
	stdout, _ := programtest.Succeed(t, f.environ, "keys", "resolve", "--by", "grace", id, "--reason", "the customer does not want it any more")
	require.Regexp(t, `^Key `+id+` is finished\. Its response, to every retry:\n422 \{"type":"/problems/payment-refused".*"code":"canceled".*\}\n$`, stdout)
	history := f.keys("show", id)
	require.Regexp(t, `(?m)^20.{17} +key\.retry \{"by": ?".+", "reason": ?"Stripe is back"\}$`, history, "the current user")
	require.Regexp(t, `(?m)^20.{17} +key\.resolve \{"by": ?"grace", "reason": ?"the customer does not want it any more"\}$`, history)
	require.Contains(t, programtest.Fail(t, f.environ, "keys", "retry", id, "--reason", "once more"), "orders: key "+id+" is finished, so nothing continues it\n")
	require.Equal(t, 1, f.count("SELECT count(*) FROM idempotency_keys WHERE recovery_point = 'finished'"))
	require.Empty(t, f.stripe.Charges())
}
