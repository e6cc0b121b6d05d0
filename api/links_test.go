package api_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/payments/stripetest"
)

// Each link of the contract resolves in a response, and the linked operation succeeds.
func TestLinks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := openContract(t)
	type operation struct {
		*openapi3.Operation
		method, path string
	}
	operations, unresolved := map[string]operation{}, map[string]bool{}
	for path, item := range c.doc.Paths.Map() {
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
	orderKey, runningKey, refundKey := newKey(), newKey(), newKey()
	order, refundedThere := f.createPaid(t), f.createPaid(t) // intentID is that of the last one
	f.refundAtProvider(t, f.intentID(t))
	held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint, After: 1})
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
				require.Equal(t, http.StatusCreated, f.send(t, linked.method, path, part, header("Idempotency-Key", newKey())).status, "%s of %s", name, operation)
			} else {
				require.Equal(t, http.StatusOK, f.get(t, path).status, "%s of %s: %s", name, operation, path)
			}
		}
	}
	create := func(key string, edits ...requestEdit) {
		follow("createOrder", key, f.create(t, key, orderBody(), edits...))
	}
	pay := func(method string) {
		key := newKey()
		follow("createOrder", key, f.create(t, key, orderBody(withMember("payment_method", method))))
	}
	refund := func(order, key string, edits ...requestEdit) {
		follow("createRefund", key, f.createRefund(t, order, key, part, edits...))
	}
	create(orderKey)
	create(runningKey, prefer(respondAsync)) // 202
	create(runningKey)                       // 409
	held.Release()
	pay("pm_card_visa_chargeDeclined")
	pay("pm_card_nobody")
	down := f.stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Times: stripetest.Always})
	create(newKey())
	refund(order, newKey())
	down.Release()
	refund(order, refundKey)
	refund(order, newKey(), prefer(respondAsync))
	refund(refundedThere, newKey())
	follow("getIdempotencyKey", refundKey, f.getKey(t, refundKey))
	idempotencytest.Reap(t, f.pool)
	refund(order, refundKey)
	create(refundKey)
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
