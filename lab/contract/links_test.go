package contract_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/api"
	"example.com/orders-api/client"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments/stripetest"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Main{M: m}.Run()) }

type response struct {
	status   int
	location string
	body     []byte
}

// shop is a shop with its API.
type shop struct {
	*orderstest.Shop

	router chi.Router
	apiKey string
}

func newShop(t *testing.T) shop {
	t.Helper()
	s := shop{Shop: orderstest.New(t, orderstest.Options{})}
	s.router, s.apiKey = s.API(t, api.Config{})
	return s
}

func (s shop) send(t *testing.T, method, path, key, body string, async bool) response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+s.apiKey)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	if async {
		r.Header.Set("Prefer", "respond-async")
	}
	w := httptest.NewRecorder()
	s.router.ServeHTTP(w, r)
	return response{w.Code, w.Header().Get("Location"), w.Body.Bytes()}
}

func (s shop) pay(t *testing.T, key, card string, async bool) response {
	t.Helper()
	return s.send(t, http.MethodPost, "/v1/orders", key, strings.Replace(validOrder, "pm_card_visa", card, 1), async)
}

func newKey() string { return string(client.NewKey()) }

// Each link of the contract resolves in a response, and the linked operation succeeds.
func TestLinks(t *testing.T) {
	t.Parallel()
	doc := load(t)
	s := newShop(t)
	type operation struct {
		*openapi3.Operation
		method, path string
	}
	operations, unresolved := map[string]operation{}, map[string]bool{}
	for path, item := range doc.Paths.Map() {
		for method, o := range item.Operations() {
			operations[o.OperationID] = operation{o, method, path}
			for _, response := range o.Responses.Map() {
				for name := range response.Value.Links {
					unresolved[response.Ref+*response.Value.Description+name] = true
				}
			}
		}
	}

	const part = `{"amount":100}`
	orderKey, runningKey, refundKey, cancelKey := newKey(), newKey(), newKey(), newKey()
	const card = "pm_card_visa"
	order := s.pay(t, newKey(), card, false).location
	refundedThere := s.pay(t, newKey(), card, false)
	s.refundAtProvider(t, refundedThere)
	follow := func(operation, key string, got response) {
		documented := operations[operation].Responses.Status(got.status)
		for name, link := range documented.Value.Links {
			linked := operations[link.Value.OperationID]
			path := linked.path
			for parameter, expression := range link.Value.Parameters {
				value := resolveExpression(t, expression.(string), key, got)
				path = strings.ReplaceAll(path, "{"+parameter+"}", url.PathEscape(value))
			}
			if strings.Contains(path, "//") || strings.HasSuffix(path, "/") {
				continue // the response does not have the member
			}
			delete(unresolved, documented.Ref+*documented.Value.Description+name)
			if linked.method == http.MethodPost {
				require.Equal(t, http.StatusCreated, s.send(t, linked.method, path, newKey(), part, false).status, "%s of %s", name, operation)
			} else {
				require.Equal(t, http.StatusOK, s.send(t, linked.method, path, "", "", false).status, "%s of %s: %s", name, operation, path)
			}
		}
	}
	create := func(key, card string, async bool) { follow("createOrder", key, s.pay(t, key, card, async)) }
	refund := func(order, key string, async bool) {
		follow("createRefund", key, s.send(t, http.MethodPost, order+"/refunds", key, part, async))
	}
	cancel := func(order, key string, async bool) {
		follow("cancelOrder", key, s.send(t, http.MethodPost, order+"/cancel", key, "{}", async))
	}
	waiting := func() string { // an order that the customer has not approved
		key := newKey()
		s.pay(t, key, "pm_card_threeDSecure2Required", false)
		return "/v1/orders/" + idempotency.DeriveID("order", s.Account, idempotency.Key(key)).String()
	}
	canceled, unfinished := waiting(), waiting()
	cancel(canceled, cancelKey, false)
	cancel(waiting(), newKey(), true)
	held := s.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: "POST /v1/payment_intents/{id}/confirm", After: 1})
	create(orderKey, card, false)
	create(runningKey, card, true)  // 202
	create(runningKey, card, false) // 409
	held.Release()
	create(newKey(), "pm_card_visa_chargeDeclined", false)
	create(newKey(), "pm_card_nobody", false)
	down := s.Stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Times: stripetest.Always})
	create(newKey(), card, false)
	refund(order, newKey(), false)
	cancel(unfinished, newKey(), false)
	down.Release()
	refund(order, refundKey, false)
	refund(order, newKey(), true)
	refund(refundedThere.location, newKey(), false)
	follow("getIdempotencyKey", refundKey, s.send(t, http.MethodGet, "/v1/idempotency-keys/"+refundKey, "", "", false))
	idempotencytest.Reap(t, s.Pool)
	refund(order, refundKey, false)
	create(refundKey, card, false)
	cancel(canceled, cancelKey, false)
	require.Empty(t, unresolved, "no response above has what these links refer to")
}

// resolveExpression evaluates a runtime expression of OpenAPI, "" if it is absent.
func resolveExpression(t *testing.T, expression, key string, got response) string {
	t.Helper()
	if expression == "$request.header.Idempotency-Key" {
		return key
	}
	pointer, ok := strings.CutPrefix(expression, "$response.body#/")
	require.True(t, ok, expression)
	var value any
	require.NoError(t, json.Unmarshal(got.body, &value))
	for name := range strings.SplitSeq(pointer, "/") {
		member, _ := value.(map[string]any)
		value = member[name]
	}
	text, _ := value.(string)
	return text
}

func (s shop) refundAtProvider(t *testing.T, order response) {
	t.Helper()
	var paid client.Order
	require.NoError(t, json.Unmarshal(order.body, &paid))
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/refunds", strings.NewReader("payment_intent="+string(paid.PaymentIntentID)))
	req.Header.Set("Authorization", "Bearer sk_test_orders")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	s.Stripe.ServeHTTP(w, req)
	require.Equal(t, http.StatusOK, w.Code)
}
