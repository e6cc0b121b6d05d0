package api_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/payments/stripetest"
)

type keyStatus struct {
	Key           string `json:"key"`
	State         string `json:"state"`
	Operation     string `json:"operation"`
	RecoveryPoint string `json:"recovery_point"`
	Attempt       int    `json:"attempt"`

	CreatedAt time.Time  `json:"created_at"`
	LastRunAt time.Time  `json:"last_run_at"`
	ExpiresAt *time.Time `json:"expires_at"`

	Response *storedResponse `json:"response"`
	Order    *link           `json:"order"`
	Refund   *link           `json:"refund"`
}

type storedResponse struct {
	Status   int    `json:"status"`
	Type     string `json:"type"`
	Location string `json:"location"`
}

type link struct {
	ID   uuid.UUID `json:"id"`
	Href string    `json:"href"`
}

func (got response) keyStatus(t *testing.T) keyStatus {
	t.Helper()
	require.Contains(t, []int{http.StatusOK, http.StatusAccepted}, got.status, "%s", got.body)
	return decode[keyStatus](t, got)
}

func (f *fixture) getKey(t *testing.T, key string, edits ...requestEdit) response {
	t.Helper()
	return f.get(t, keyPath(key), edits...)
}

func keyPath(key string) string { return "/v1/idempotency-keys/" + url.PathEscape(key) }

func prefer(preferences ...string) requestEdit { return header("Prefer", preferences...) }

func (f *fixture) keyTimes(t *testing.T, key string) (created, lastRun time.Time, finished *time.Time) {
	t.Helper()
	require.NoError(t, f.pool.QueryRow(t.Context(), `
SELECT created_at,
       last_run_at,
       finished_at
  FROM idempotency_keys
 WHERE account_id = $1
   AND idempotency_key = $2`, f.account, key).Scan(&created, &lastRun, &finished))
	return created, lastRun, finished
}

func (f *fixture) requireStatus(t *testing.T, key string, want keyStatus) {
	t.Helper()
	got := f.getKey(t, key).keyStatus(t)
	created, lastRun, finished := f.keyTimes(t, key)
	require.True(t, created.Equal(got.CreatedAt))
	require.True(t, lastRun.Equal(got.LastRunAt))
	if finished == nil {
		require.Nil(t, got.ExpiresAt)
	} else {
		require.True(t, finished.Add(retention).Equal(*got.ExpiresAt))
	}
	require.Equal(t, idempotency.DeriveID("order", f.account, idempotency.Key(key)), got.Order.ID)
	require.Equal(t, "/v1/orders/"+got.Order.ID.String(), got.Order.Href)
	require.Equal(t, http.StatusOK, f.get(t, got.Order.Href).status)

	want.Key, want.Operation = key, "create_order"
	want.CreatedAt, want.LastRunAt, want.ExpiresAt, want.Order = got.CreatedAt, got.LastRunAt, got.ExpiresAt, got.Order
	require.Equal(t, want, got)
}

func TestGetKey_states(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	finished := func(status int, problemType, location string) keyStatus {
		return keyStatus{
			State: "finished", RecoveryPoint: "finished", Attempt: 1, Response: &storedResponse{status, problemType, location},
		}
	}

	key := newKey()
	require.Equal(t, "not-found", f.getKey(t, key).problem(t).slug(), "never used")
	require.Equal(t, "validation-failed", f.create(t, key, "{}").problem(t).slug())
	require.Equal(t, "not-found", f.getKey(t, key).problem(t).slug(), "an invalid request does not use its key")

	held, running := f.createHeld(t, key, orderBody())
	f.requireStatus(t, key, keyStatus{State: "in_progress", RecoveryPoint: "charge_created", Attempt: 1})
	require.Equal(t, "1", f.getKey(t, key).header.Get("Retry-After"))
	held.Release()
	created := <-running
	require.Equal(t, http.StatusCreated, created.status)
	paid := finished(http.StatusCreated, "", created.header.Get("Location"))
	f.requireStatus(t, key, paid)
	require.Empty(t, f.getKey(t, key).header["Retry-After"])
	require.Equal(t, http.StatusOK, f.send(t, http.MethodHead, keyPath(key), "").status)
	f.requireOnePaidOrder(t)

	declined := newKey()
	f.create(t, declined, orderBody(withMember("payment_method", "pm_card_visa_chargeDeclined")))
	f.requireStatus(t, declined, finished(http.StatusPaymentRequired, "/problems/payment-declined", ""))

	interrupted := newKey()
	down := f.stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: createEndpoint, Times: 2})
	for n := range 2 {
		require.Equal(t, http.StatusServiceUnavailable, f.create(t, interrupted, orderBody()).status)
		f.requireStatus(t, interrupted, keyStatus{State: "waiting", RecoveryPoint: "order_created", Attempt: n + 1})
		require.Equal(t, "2", f.getKey(t, interrupted).header.Get("Retry-After"))
	}
	down.Release()
	f.exec(t, "UPDATE idempotency_keys SET needs_review_at = now() WHERE idempotency_key = $1", interrupted)
	f.requireStatus(t, interrupted, keyStatus{State: "needs_review", RecoveryPoint: "order_created", Attempt: 2})
	require.Equal(t, "60", f.getKey(t, interrupted).header.Get("Retry-After"))
	resumed := f.create(t, interrupted, orderBody())
	require.Equal(t, http.StatusCreated, resumed.status)
	want := finished(http.StatusCreated, "", resumed.header.Get("Location"))
	want.Attempt = 3
	f.requireStatus(t, interrupted, want)
}

// A reaped key is expired, and 404 means that a key was never used.
func TestGetKey_expired(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	orderKey, refundKey, declined := newKey(), newKey(), newKey()
	order := f.create(t, orderKey, orderBody()).header.Get("Location")
	refund := f.createRefund(t, order, refundKey, `{"amount":100}`)
	f.create(t, declined, orderBody(withMember("payment_method", "pm_card_visa_chargeDeclined")))
	before := map[string]keyStatus{}
	for _, key := range []string{orderKey, refundKey, declined} {
		before[key] = f.getKey(t, key).keyStatus(t)
	}
	require.Nil(t, before[orderKey].Refund)
	require.Equal(t, refund.header.Get("Location"), before[refundKey].Refund.Href)
	require.Equal(t, refund.header.Get("Location"), before[refundKey].Response.Location)

	require.Equal(t, 3, idempotencytest.Reap(t, f.pool))
	for key, was := range before {
		got := f.getKey(t, key, prefer("wait=30"))
		require.Empty(t, got.header["Retry-After"])
		require.Empty(t, got.header["Preference-Applied"], "there was nothing to wait for")
		status := got.keyStatus(t)
		require.Equal(t, keyStatus{
			Key: key, State: "expired", Operation: was.Operation, CreatedAt: was.CreatedAt, Order: was.Order, Refund: was.Refund,
		}, status)
		require.Equal(t, http.StatusOK, f.get(t, status.Order.Href).status)
	}
	require.Equal(t, "idempotency-key-expired", f.create(t, orderKey, orderBody()).problem(t).slug())
	require.Equal(t, "not-found", f.getKey(t, newKey()).problem(t).slug())
	require.Equal(t, "not-found", f.getKey(t, orderKey, header("Authorization", "Bearer "+f.otherAccount(t))).problem(t).slug())
}

func TestGetKey_body(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	down := f.stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: createEndpoint})
	f.create(t, "a-key-of-this-test", orderBody())
	down.Release()
	f.exec(t, "UPDATE idempotency_keys SET created_at = '2026-11-20 10:30:12.5+01', last_run_at = '2026-11-20 09:31:00Z'")
	order := idempotency.DeriveID("order", f.account, "a-key-of-this-test").String()
	require.Equal(t, `{"key":"a-key-of-this-test","state":"waiting","operation":"create_order","recovery_point":"order_created",`+
		`"attempt":1,"created_at":"2026-11-20T09:30:12.500000Z","last_run_at":"2026-11-20T09:31:00.000000Z","expires_at":null,"response":null,`+
		`"order":{"id":"`+order+`","href":"/v1/orders/`+order+`"},"refund":null}`, string(f.getKey(t, "a-key-of-this-test").body))

	require.Equal(t, http.StatusCreated, f.create(t, "a-key-of-this-test", orderBody()).status)
	f.exec(t, "UPDATE idempotency_keys SET last_run_at = '2026-11-20 09:31:00Z', finished_at = '2026-11-20 09:31:01Z'")
	require.Equal(t, `{"key":"a-key-of-this-test","state":"finished","operation":"create_order","recovery_point":"finished",`+
		`"attempt":2,"created_at":"2026-11-20T09:30:12.500000Z","last_run_at":"2026-11-20T09:31:00.000000Z","expires_at":"2026-11-23T09:31:01.000000Z",`+
		`"response":{"status":201,"type":null,"location":"/v1/orders/`+order+`"},`+
		`"order":{"id":"`+order+`","href":"/v1/orders/`+order+`"},"refund":null}`, string(f.getKey(t, "a-key-of-this-test").body))
}

// A key of any visible ASCII characters has a URL.
func TestGetKey_escapedKeys(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var all strings.Builder
	for c := '!'; c <= '~'; c++ {
		all.WriteRune(c)
	}
	for _, key := range []string{
		all.String(),
		"/v1/orders/../../",
		"........../../..",
		"%2F%2f%25%zz%%%%",
		"100%25-of-the-key",
		"%41%42%43%44%45%46",
		"?wait=20&key#fragment",
		"key;with=params,a=b",
		`"quoted-in-quotes"`,
		`back\slash\and\"more`,
		strings.Repeat("%", 255),
	} {
		sent := key
		if strings.HasPrefix(key, `"`) {
			sent = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"` // both forms name it
		}
		got := f.create(t, sent, orderBody(), prefer("respond-async"))
		require.Equal(t, http.StatusAccepted, got.status, "%s: %s", key, got.body)
		require.Equal(t, keyPath(key), got.header.Get("Location"))
		status := f.get(t, got.header.Get("Location"), prefer("wait=20")).keyStatus(t)
		require.Equal(t, key, status.Key)
		require.Equal(t, "finished", status.State)

		// Needless escapes do not change the key.
		var escaped strings.Builder
		for _, c := range []byte(key) {
			escaped.WriteString("%" + strings.ToUpper(string("0123456789abcdef"[c>>4])+string("0123456789abcdef"[c&15])))
		}
		require.Equal(t, key, f.get(t, "/v1/idempotency-keys/"+escaped.String()).keyStatus(t).Key)
	}
	for _, path := range []string{"short", "fifteen-letters", strings.Repeat("x", 256), "with%20a%20blank%20in%20it", "with-an-%C3%BCmlaut-in-it", "with-a-%00-zero-byte-in-it"} {
		require.Equal(t, "not-found", f.get(t, "/v1/idempotency-keys/"+path).problem(t).slug(), path)
	}
}

// Two accounts use the same key and do not affect each other.
func TestGetKey_otherAccount(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := newKey()
	_, theirs, err := accounts.Create(t.Context(), f.pool, "another")
	require.NoError(t, err)
	them := header("Authorization", "Bearer "+theirs)

	held, ours := f.createHeld(t, key, orderBody())
	require.Equal(t, "not-found", f.getKey(t, key, them, prefer("wait=30")).problem(t).slug(), "at once")
	got := f.create(t, key, orderBody(), them, prefer("wait=30"))
	require.Equal(t, http.StatusCreated, got.status)
	require.Empty(t, got.header.Get("Idempotent-Replayed"))
	require.Empty(t, got.header.Get("Preference-Applied"), "there was nothing to wait for")
	require.Equal(t, got.order(t).ID, f.getKey(t, key, them).keyStatus(t).Order.ID)
	held.Release()
	require.NotEqual(t, got.order(t).ID, (<-ours).order(t).ID)
	require.Equal(t, "unauthorized", f.getKey(t, key, header("Authorization")).problem(t).slug())
}

func TestGetKey_wait(t *testing.T) {
	t.Parallel()
	f := newFixture(t, poolSize(1))
	key := newKey()
	held, running := f.createHeld(t, key, orderBody())

	now := f.getKey(t, key, prefer("wait=1"))
	require.Equal(t, "in_progress", now.keyStatus(t).State, "the wait is over")
	require.Equal(t, "wait=1", now.header.Get("Preference-Applied"))
	waiting := make([]<-chan asyncResponse, 20)
	for i := range waiting {
		waiting[i] = f.sendAsync(f.request(t, http.MethodGet, keyPath(key), "", prefer("wait=600")))
	}
	f.awaitWaiters(t, len(waiting))
	held.Release()
	require.Equal(t, http.StatusCreated, (<-running).status)
	for _, done := range waiting {
		got := receive(t, done)
		require.Equal(t, "wait=30", got.header.Get("Preference-Applied"))
		require.Equal(t, "finished", got.keyStatus(t).State)
		require.Equal(t, string(f.getKey(t, key).body), string(got.body))
	}
	got := f.getKey(t, key, prefer("wait=30"))
	require.Empty(t, got.header.Get("Preference-Applied"), "there was nothing to wait for")
	f.requireOnePaidOrder(t)
}
