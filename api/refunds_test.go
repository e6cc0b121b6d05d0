package api_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/orders"
	"example.com/orders-api/payments/stripetest"
)

const refundEndpoint = "POST /v1/refunds"

// refund reads the answer as a refund.
func (got answer) refund(t *testing.T) orders.Refund {
	t.Helper()
	var r orders.Refund
	require.NoError(t, json.Unmarshal(got.body, &r), "%d %s", got.status, got.body)
	return r
}

// giveBack sends POST to the refunds of the order at that address.
func (a *app) giveBack(t *testing.T, order, key, body string, edits ...edit) answer {
	t.Helper()
	return a.send(t, http.MethodPost, order+"/refunds", body, append([]edit{header("Idempotency-Key", key)}, edits...)...)
}

// buy makes an order and returns its address.
func (a *app) buy(t *testing.T, change ...func(map[string]any)) string {
	t.Helper()
	got := a.create(t, newKey(), body(change...))
	require.Equal(t, http.StatusCreated, got.status, "%s", got.body)
	return got.header.Get("Location")
}

func TestAnOrderIsRefundedInParts(t *testing.T) {
	t.Parallel()
	a := start(t)
	order := a.buy(t)
	key := newKey()
	part := a.giveBack(t, order, key, `{"amount":1800,"reason":"requested_by_customer"}`)
	require.Equal(t, http.StatusCreated, part.status, "%s", part.body)
	refund := part.refund(t)
	require.Equal(t, order, "/v1/orders/"+refund.OrderID.String())
	require.Equal(t, order+"/refunds/"+refund.ID.String(), part.header.Get("Location"))
	require.EqualValues(t, 1800, refund.Amount)
	require.Equal(t, "requested_by_customer", *refund.Reason)
	require.Equal(t, orders.RefundSucceeded, refund.Status)
	require.Equal(t, map[string]int64{"usd": 2500}, a.stripe.MoneyMoved())
	after := a.get(t, order).order(t)
	require.Equal(t, orders.StatusPartiallyRefunded, after.Status)
	require.EqualValues(t, 1800, after.AmountRefunded)

	again := a.giveBack(t, order, key, ` {"reason":"requested_by_customer", "amount":1.8e3} `)
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, string(part.body), string(again.body))
	require.Equal(t, part.header.Get("Location"), again.header.Get("Location"))

	tooMuch := a.giveBack(t, order, newKey(), `{"amount":2501}`)
	require.Equal(t, []string{"/amount"}, tooMuch.problem(t).pointers())
	rest := a.giveBack(t, order, newKey(), `{}`).refund(t)
	require.EqualValues(t, 2500, rest.Amount)
	require.Nil(t, rest.Reason)
	nothing := a.giveBack(t, order, newKey(), `{}`)
	require.Equal(t, []string{""}, nothing.problem(t).pointers())
	require.Equal(t, orders.StatusRefunded, a.get(t, order).order(t).Status)
	require.Equal(t, map[string]int64{"usd": 0}, a.stripe.MoneyMoved())
	require.Equal(t, 3, a.rows(t)["idempotency_keys"], "what was refused used no key")

	require.Equal(t, string(part.body), string(a.get(t, part.header.Get("Location")).body))
	var page struct {
		Data    []orders.Refund `json:"data"`
		HasMore bool            `json:"has_more"`
	}
	require.NoError(t, json.Unmarshal(a.get(t, order+"/refunds?limit=1").body, &page))
	require.Equal(t, []orders.Refund{rest}, page.Data)
	require.True(t, page.HasMore)
	require.NoError(t, json.Unmarshal(a.get(t, order+"/refunds?limit=1&after="+rest.ID.String()).body, &page))
	require.Equal(t, []orders.Refund{refund}, page.Data)
	require.False(t, page.HasMore)
	require.JSONEq(t, `{"data":[],"has_more":false}`, string(a.get(t, order+"/refunds?after="+refund.ID.String()).body))
}

// What is wrong with a request for a refund, and that nothing comes of it.
func TestRefundsThatAreNotMade(t *testing.T) {
	t.Parallel()
	a := start(t)
	order := a.buy(t)
	unpaid := a.create(t, newKey(), body(with("payment_method", "pm_card_visa_chargeDeclined")))
	require.Equal(t, http.StatusPaymentRequired, unpaid.status)
	declined := "/v1/orders/" + unpaid.problem(t).OrderID
	before := a.rows(t)
	for name, test := range map[string]struct {
		order, body string
		slug        string
		pointers    []string
	}{
		"an order of nobody":          {"/v1/orders/" + uuid.NewString(), `{}`, "not-found", nil},
		"an address that is none":     {"/v1/orders/x", `{}`, "not-found", nil},
		"an order that is not paid":   {declined, `{}`, "validation-failed", []string{""}},
		"more than the order":         {order, `{"amount":4301}`, "validation-failed", []string{"/amount"}},
		"nothing":                     {order, `{"amount":0}`, "validation-failed", []string{"/amount"}},
		"less than nothing":           {order, `{"amount":-5}`, "validation-failed", []string{"/amount"}},
		"a fraction":                  {order, `{"amount":10.5}`, "validation-failed", []string{"/amount"}},
		"more than anybody pays":      {order, `{"amount":100000000}`, "validation-failed", []string{"/amount"}},
		"an amount in words":          {order, `{"amount":"100"}`, "validation-failed", []string{"/amount"}},
		"no amount, and saying so":    {order, `{"amount":null}`, "validation-failed", []string{"/amount"}},
		"a reason of its own":         {order, `{"reason":"regret"}`, "validation-failed", []string{"/reason"}},
		"an empty reason":             {order, `{"reason":""}`, "validation-failed", []string{"/reason"}},
		"a reason that is a number":   {order, `{"reason":7}`, "validation-failed", []string{"/reason"}},
		"a member that is not known":  {order, `{"amount":1,"Amount":2}`, "validation-failed", []string{"/Amount"}},
		"everything at once":          {order, `{"amount":0,"reason":"x","x":1}`, "validation-failed", []string{"/amount", "/x", "/reason"}},
		"no JSON":                     {order, `amount=1`, "malformed-request", nil},
		"an array":                    {order, `[]`, "malformed-request", nil},
		"a member twice":              {order, `{"amount":1,"amount":2}`, "malformed-request", nil},
		"more than 64 KiB":            {order, strings.Repeat(" ", 64<<10) + `{}`, "too-large", nil},
		"an order in other letters":   {strings.ToUpper(order[:11]) + order[11:], `{}`, "not-found", nil},
		"a body of another's kind":    {order, body(), "validation-failed", []string{"/currency", "/email", "/items", "/metadata", "/payment_method"}},
		"an order's address, renamed": {order + "/", `{}`, "not-found", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := a.giveBack(t, test.order, newKey(), test.body)
			require.Equal(t, test.slug, got.problem(t).slug(), "%s", got.body)
			if test.pointers != nil {
				require.Equal(t, test.pointers, got.problem(t).pointers())
			}
		})
	}
	require.Equal(t, "unauthorized", a.giveBack(t, order, newKey(), `{}`, header("Authorization")).problem(t).slug())
	require.Equal(t, "idempotency-key-missing", a.send(t, http.MethodPost, order+"/refunds", `{}`).problem(t).slug())
	require.Equal(t, "idempotency-key-invalid", a.giveBack(t, order, "short", `{}`).problem(t).slug())
	require.Equal(t, "unsupported-media-type", a.giveBack(t, order, newKey(), `{}`, header("Content-Type", "text/plain")).problem(t).slug())
	require.Equal(t, before, a.rows(t))
	require.Equal(t, map[string]int64{"usd": 4300}, a.stripe.MoneyMoved())

	for _, path := range []string{
		order + "/refunds/" + uuid.NewString(),
		order + "/refunds/x",
		"/v1/orders/x/refunds/" + uuid.NewString(),
		"/v1/orders/x/refunds",
		"/v1/orders/" + uuid.NewString() + "/refunds",
	} {
		require.Equal(t, "not-found", a.get(t, path).problem(t).slug(), path)
	}
	for query, pointer := range map[string]string{"limit=0": "/limit", "after=x": "/after", "after=" + uuid.NewString(): "/after", "page=2": ""} {
		require.Equal(t, []string{pointer}, a.get(t, order+"/refunds?"+query).problem(t).pointers(), query)
	}
}

// The address belongs to the request: the same body under the same key about
// another order is another request.
func TestAKeyIsForOneOrdersRefund(t *testing.T) {
	t.Parallel()
	a := start(t)
	one, other := a.buy(t), a.buy(t)
	key := newKey()
	require.Equal(t, http.StatusCreated, a.giveBack(t, one, key, `{}`).status)
	require.Equal(t, "idempotency-key-reused", a.giveBack(t, other, key, `{}`).problem(t).slug())
	require.Equal(t, "idempotency-key-reused", a.giveBack(t, one, key, `{"amount":1}`).problem(t).slug())
	require.Equal(t, "idempotency-key-reused", a.create(t, key, body()).problem(t).slug())
	require.Equal(t, map[string]int64{"usd": 4300}, a.stripe.MoneyMoved())
}

func TestForeignRefundsLookUnknown(t *testing.T) {
	t.Parallel()
	a := start(t)
	order := a.buy(t)
	refund := a.giveBack(t, order, newKey(), `{"amount":100}`).header.Get("Location")
	other := a.buy(t)
	me := header("Authorization", "Bearer "+a.otherAccount(t))
	for _, path := range []string{order + "/refunds", refund} {
		require.Equal(t, http.StatusOK, a.get(t, path).status)
		require.Equal(t, "not-found", a.get(t, path, me).problem(t).slug())
		require.Equal(t, "unauthorized", a.get(t, path, header("Authorization")).problem(t).slug())
	}
	require.Equal(t, "not-found", a.giveBack(t, order, newKey(), `{}`, me).problem(t).slug())
	id := strings.TrimPrefix(refund, order+"/refunds/")
	require.Equal(t, "not-found", a.get(t, other+"/refunds/"+id).problem(t).slug(), "a refund of another order")
	require.Equal(t, []string{"/after"}, a.get(t, other+"/refunds?after="+id).problem(t).pointers())
	require.Equal(t, map[string]int64{"usd": 8500}, a.stripe.MoneyMoved())
}

// Nobody makes an order with the key of a refund, or a refund with that of an
// order, however long ago (R17).
func TestReapedKeysOfRefundsAndOrders(t *testing.T) {
	t.Parallel()
	a := start(t)
	orderKey, refundKey := newKey(), newKey()
	order := a.create(t, orderKey, body()).header.Get("Location")
	refund := a.giveBack(t, order, refundKey, `{"amount":100}`)
	a.exec(t, "DELETE FROM idempotency_keys")
	for name, got := range map[string]answer{
		"the refund again":      a.giveBack(t, order, refundKey, `{"amount":100}`),
		"an order with its key": a.create(t, refundKey, body()),
	} {
		p := got.problem(t)
		require.Equal(t, "idempotency-key-expired", p.slug(), name)
		require.Equal(t, order, "/v1/orders/"+p.OrderID, name)
		require.Contains(t, string(got.body), `"href":"`+refund.header.Get("Location")+`"`, name)
	}
	for name, got := range map[string]answer{
		"the order again":       a.create(t, orderKey, body()),
		"a refund with its key": a.giveBack(t, order, orderKey, `{}`),
	} {
		p := got.problem(t)
		require.Equal(t, "idempotency-key-expired", p.slug(), name)
		require.Equal(t, order, "/v1/orders/"+p.OrderID, name)
		require.NotContains(t, string(got.body), `"refund"`, name)
	}
	require.Equal(t, map[string]int64{"usd": 4200}, a.stripe.MoneyMoved())
	require.Zero(t, a.rows(t)["idempotency_keys"])
}

// Somebody refunded the charge at the provider, where we do not look.
func TestARefundThatTheProviderRefuses(t *testing.T) {
	t.Parallel()
	a := start(t)
	order := a.buy(t)
	a.refundElsewhere(t, a.intentID(t))
	key := newKey()
	got := a.giveBack(t, order, key, `{}`)
	p := got.problem(t)
	require.Equal(t, "payment-refused", p.slug())
	require.Equal(t, "charge_already_refunded", p.Code)
	require.Equal(t, order, "/v1/orders/"+p.OrderID)
	again := a.giveBack(t, order, key, `{}`)
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, string(got.body), string(again.body))
	require.Equal(t, orders.StatusPaid, a.get(t, order).order(t).Status, "reconcile reports what was given back elsewhere")
}

// refundElsewhere gives an intent's money back without us.
func (a *app) refundElsewhere(t *testing.T, intent string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/refunds", strings.NewReader("payment_intent="+intent))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer sk_test_dashboard")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	recorder := httptest.NewRecorder()
	a.stripe.ServeHTTP(recorder, req)
	require.Equal(t, http.StatusOK, recorder.Code, recorder.Body.String())
}

func TestARefundWhileTheProviderFails(t *testing.T) {
	t.Parallel()
	a := start(t)
	order, key := a.buy(t), newKey()
	limit := a.stripe.Inject(stripetest.Rule{Fault: stripetest.RateLimit, Endpoint: refundEndpoint, Times: stripetest.Always})
	got := a.giveBack(t, order, key, `{}`)
	require.Equal(t, "temporarily-unavailable", got.problem(t).slug())
	limit.Release()
	lost := a.stripe.Inject(stripetest.Rule{Fault: stripetest.CloseAfter, Endpoint: refundEndpoint, Times: stripetest.Always})
	blind := a.stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Endpoint: "GET /v1/refunds", Times: stripetest.Always, After: 1})
	got = a.giveBack(t, order, key, `{}`)
	require.Equal(t, "payment-outcome-unknown", got.problem(t).slug())
	lost.Release()
	blind.Release()
	got = a.giveBack(t, order, key, `{}`)
	require.Equal(t, http.StatusCreated, got.status)
	require.Equal(t, map[string]int64{"usd": 0}, a.stripe.MoneyMoved())
}

func TestARefundInProgress(t *testing.T) {
	t.Parallel()
	a := start(t)
	order, key := a.buy(t), newKey()
	held := a.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: refundEndpoint})
	first := a.sendAsync(a.request(t, http.MethodPost, order+"/refunds", `{}`, header("Idempotency-Key", key)))
	<-held.Reached()
	require.Equal(t, "idempotency-key-in-progress", a.giveBack(t, order, key, `{}`).problem(t).slug())
	require.Equal(t, []string{""}, a.giveBack(t, order, newKey(), `{}`).problem(t).pointers(), "its amount is held")
	var id string
	require.NoError(t, a.pool.QueryRow(t.Context(), "SELECT id FROM refunds").Scan(&id))
	require.Equal(t, orders.RefundPending, a.get(t, order+"/refunds/"+id).refund(t).Status)
	held.Release()
	got := <-first
	require.NoError(t, got.err)
	require.Equal(t, http.StatusCreated, got.status)
}

// The money comes back from the bank: the books follow, the stored answer stays.
func TestAnEventSettlesARefund(t *testing.T) {
	t.Parallel()
	a := start(t)
	order, key := a.buy(t, with("payment_method", "pm_card_pendingRefund")), newKey()
	got := a.giveBack(t, order, key, `{}`)
	refund := got.refund(t)
	require.Equal(t, orders.RefundPending, refund.Status)
	require.Equal(t, string(got.body), string(a.get(t, got.header.Get("Location")).body))
	require.Equal(t, orders.StatusRefunded, a.get(t, order).order(t).Status)

	require.NoError(t, a.stripe.Settle(*refund.ProviderRefundID, false))
	payload, signature, err := a.stripe.Event(a.webhook, "refund.failed", *refund.ProviderRefundID)
	require.NoError(t, err)
	requireReceived(t, a.deliver(t, string(payload), signature, header("X-Request-Id", "refund-failed")))
	line := a.log.await(t, map[string]any{"request_id": "refund-failed"})
	require.Equal(t, "refund_synced", line["outcome"])
	require.Equal(t, refund.ID.String(), line["refund_id"])
	require.Equal(t, orders.RefundFailed, a.get(t, got.header.Get("Location")).refund(t).Status)
	require.Equal(t, orders.StatusPaid, a.get(t, order).order(t).Status)
	require.Equal(t, string(got.body), string(a.giveBack(t, order, key, `{}`).body))
}

func TestRefundsWithABrokenDatabase(t *testing.T) {
	t.Parallel()
	database := &outage{}
	a := start(t, func(s *settings) { s.pool = append(s.pool, database.configure) })
	order, key := a.buy(t), newKey()
	refund := a.giveBack(t, order, newKey(), `{"amount":1}`).header.Get("Location")
	all := func() []answer {
		return []answer{a.giveBack(t, order, key, `{}`), a.get(t, order+"/refunds"), a.get(t, refund)}
	}
	a.exec(t, "ALTER TABLE refunds RENAME TO gone")
	for _, got := range all() {
		require.Equal(t, "internal-error", got.problem(t).slug())
	}
	a.exec(t, "ALTER TABLE gone RENAME TO refunds")
	database.set(true)
	for _, got := range all() {
		require.Equal(t, "temporarily-unavailable", got.problem(t).slug())
	}
	database.set(false)
	require.Equal(t, http.StatusCreated, a.giveBack(t, order, key, `{}`).status)
	require.Equal(t, map[string]int64{"usd": 0}, a.stripe.MoneyMoved())
}

// The examples of requests do what the contract says beside them.
func TestExamplesOfRefundsAreAnswered(t *testing.T) {
	t.Parallel()
	a := start(t)
	c, err := loadContract()
	require.NoError(t, err)
	examples := c.doc.Paths.Value("/v1/orders/{id}/refunds").Post.RequestBody.Value.Content.Get("application/json").Examples
	require.Len(t, examples, 2)
	order := a.buy(t)
	for _, test := range []struct {
		example string
		amount  int64
	}{{"part", 1800}, {"rest", 2500}} {
		sent, err := json.Marshal(examples[test.example].Value.Value)
		require.NoError(t, err)
		got := a.giveBack(t, order, newKey(), string(sent))
		require.Equal(t, http.StatusCreated, got.status)
		require.Equal(t, test.amount, got.refund(t).Amount)
	}
}
