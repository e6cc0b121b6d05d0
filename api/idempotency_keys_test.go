package api_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments/stripetest"
)

func (got response) keyStatus(t *testing.T) client.KeyStatus {
	t.Helper()
	require.Contains(t, []int{http.StatusOK, http.StatusAccepted}, got.status, "%s", got.body)
	return decode[client.KeyStatus](t, got)
}

func (f *fixture) getKey(t *testing.T, key string, edits ...requestEdit) response {
	t.Helper()
	return f.get(t, keyPath(key), edits...)
}

func keyPath(key string) string { return "/v1/idempotency-keys/" + url.PathEscape(key) }

func prefer(preferences ...string) requestEdit { return header("Prefer", preferences...) }

func (f *fixture) requireStatus(t *testing.T, key string, want client.KeyStatus) {
	t.Helper()
	got := f.getKey(t, key).keyStatus(t)
	require.Equal(t, idempotency.DeriveID("order", f.Account, idempotency.Key(key)).String(), got.Order.ID)
	require.Equal(t, http.StatusOK, f.get(t, got.Order.Href).status)
	want.Key, want.Operation = client.Key(key), "create_order"
	want.CreatedAt, want.UpdatedAt, want.ExpiresAt, want.Order = got.CreatedAt, got.UpdatedAt, got.ExpiresAt, got.Order
	require.Equal(t, want, got)
}

func TestGetKey_states(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	finished := func(runs, status int, problemType, location client.Nullable) client.KeyStatus {
		return client.KeyStatus{
			State: "finished", RecoveryPoint: "finished", Runs: &runs, Response: &client.KeyResponse{Status: status, Type: problemType, Location: location},
		}
	}

	key := newKey()
	require.Equal(t, "not-found", f.getKey(t, key).problem(t).slug(), "never used")
	require.Equal(t, "validation-failed", f.create(t, key, "{}").problem(t).slug())
	require.Equal(t, "not-found", f.getKey(t, key).problem(t).slug(), "an invalid request does not use its key")

	held, running := f.createHeld(t, key, orderBody())
	f.requireStatus(t, key, client.KeyStatus{State: "in_progress", RecoveryPoint: "charge_created", Runs: new(1)})
	require.Equal(t, "1", f.getKey(t, key).header.Get("Retry-After"))
	held.Release()
	created := <-running
	require.Equal(t, http.StatusCreated, created.status)
	f.requireStatus(t, key, finished(1, http.StatusCreated, "", client.Nullable(created.header.Get("Location"))))
	require.Empty(t, f.getKey(t, key).header["Retry-After"])
	f.requireOnePaidOrder(t)

	declined := newKey()
	f.create(t, declined, orderBody(withMember("payment_method", "pm_card_visa_chargeDeclined")))
	f.requireStatus(t, declined, finished(1, http.StatusPaymentRequired, "/problems/payment-declined", ""))

	interrupted := newKey()
	f.Stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: createEndpoint})
	require.Equal(t, http.StatusServiceUnavailable, f.create(t, interrupted, orderBody()).status)
	f.requireStatus(t, interrupted, client.KeyStatus{State: "waiting", RecoveryPoint: "order_created", Runs: new(1)})
	require.Equal(t, "2", f.getKey(t, interrupted).header.Get("Retry-After"))
	resumed := f.create(t, interrupted, orderBody())
	require.Equal(t, http.StatusCreated, resumed.status)
	f.requireStatus(t, interrupted, finished(2, http.StatusCreated, "", client.Nullable(resumed.header.Get("Location"))))
}

func TestGetKey_expired(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := newKey()
	f.create(t, key, orderBody())
	was := f.getKey(t, key).keyStatus(t)
	require.Equal(t, 1, idempotencytest.Reap(t, f.Pool))
	got := f.getKey(t, key, prefer("wait=30"))
	require.Empty(t, got.header["Preference-Applied"], "there was nothing to wait for")
	require.Equal(t, client.KeyStatus{
		Key: was.Key, State: "expired", Operation: was.Operation, CreatedAt: was.CreatedAt, Order: was.Order,
	}, got.keyStatus(t))
	require.Equal(t, "not-found", f.getKey(t, key, header("Authorization", "Bearer "+f.otherAccount(t))).problem(t).slug())
}

func TestGetKey_body(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const key = "a-key-of-this-test"
	require.Equal(t, http.StatusCreated, f.create(t, key, orderBody()).status)
	f.exec(t, "UPDATE idempotency_keys SET created_at = '2026-11-20 10:30:12.5+01', updated_at = '2026-11-20 09:31:00Z', finished_at = '2026-11-20 09:31:01Z'")
	order := idempotency.DeriveID("order", f.Account, key).String()
	require.Equal(t, `{"key":"a-key-of-this-test","state":"finished","operation":"create_order","recovery_point":"finished",`+
		`"runs":1,"created_at":"2026-11-20T09:30:12.500000Z","updated_at":"2026-11-20T09:31:00.000000Z","expires_at":"2026-11-23T09:31:01.000000Z",`+
		`"response":{"status":201,"type":null,"location":"/v1/orders/`+order+`"},`+
		`"order":{"id":"`+order+`","href":"/v1/orders/`+order+`"},"refund":null}`, string(f.getKey(t, key).body))
}

// Location survives a proxy that decodes the path, as nginx with a URI in proxy_pass and Apache do.
func TestGetKey_escapedKeys(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, key := range []string{
		"!#$%&'()*+,-./0:;<=>?@A[\\]^_`a{|}~",
		"/v1/orders/../../",
		"%2F%2f%25%zz%%%%",
		"?wait=20&key#fragment",
		`"quoted-in-quotes"`,
		"../../../etc/passwd",
		"order//of/two/slashes",
		"~order-with-a-tilde",
		"a-plain-key-of-this-test",
		"A-plain-key-of-this-test", // keys are compared octet by octet
		strings.Repeat("/a", 127) + "/",
	} {
		sent := key
		if strings.HasPrefix(key, `"`) {
			sent = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		}
		got := f.create(t, sent, orderBody(), prefer("respond-async"))
		location := got.header.Get("Location")
		require.Regexp(t, "^/v1/idempotency-keys/[^/%?#]+$", location, "nothing that a proxy could decode")
		status := f.get(t, location, prefer("wait=20")).keyStatus(t)
		require.EqualValues(t, key, status.Key)
		require.Equal(t, "finished", status.State)
		require.EqualValues(t, key, f.get(t, keyPath(key)).keyStatus(t).Key, "the key itself")

		// Needless escapes do not change the key.
		escaped := regexp.MustCompile("..").ReplaceAllString(fmt.Sprintf("%X", key), "%$0")
		require.EqualValues(t, key, f.get(t, "/v1/idempotency-keys/"+escaped).keyStatus(t).Key)
	}
}

// An unknown key proves nothing: a proxy may have changed the address of a used key, its row may be lost, or
// its request may be on its way.
func TestGetKey_unknown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for path, outcome := range map[string]string{
		"/v1/idempotency-keys/order/2026/the-first": "unknown", // a decoded slash
		"/v1/idempotency-keys/order":                "unknown", // cut at a decoded question mark
		"/v1/idempotency-keys/~b3JkZXI":             "unknown", // a key is longer
		"/v1/idempotency-keys/with-a-%00-zero-byte": "unknown",
		"/v1/idempotency-keys/":                     "unknown",
		keyPath("an-unused-key-of-this-test"):       "unknown",
		"/v1/orders/order/2026":                     "none",
	} {
		p := f.get(t, path).problem(t)
		require.Equal(t, []string{"not-found", outcome}, []string{p.slug(), string(p.Outcome)}, path)
	}
}

// The records of the key are lost, so no response names an order.
func TestKey_expiredAsLost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const key = "the-key-of-lost-rows"
	require.NoError(t, f.Engine.ExpireLost(t.Context(), f.Account, idempotency.KeyID(f.Account, key), orders.CreateOperation, orders.Path, time.Now()))
	got := f.create(t, key, orderBody())
	require.Equal(t, http.StatusUnprocessableEntity, got.status)
	p := got.problem(t)
	require.Equal(t, []string{"idempotency-key-expired", "never", "final"}, []string{p.slug(), string(p.Retry), string(p.Outcome)})
	require.NotContains(t, string(got.body), "order_id")
	status := f.get(t, keyPath(key)).keyStatus(t)
	require.Equal(t, "expired", status.State)
	require.Nil(t, status.Order)
	require.Empty(t, f.Stripe.Charges())
}
