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
	c, err := loadContract()
	require.NoError(t, err)
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
	var failing *stripetest.Injection
	for _, row := range []struct {
		operation, key string
		status         int
		send           func(key string) response
	}{
		{"createOrder", orderKey, 201, func(key string) response { return f.create(t, key, orderBody()) }},
		{"createOrder", runningKey, 202, func(key string) response { return f.create(t, key, orderBody(), prefer(respondAsync)) }},
		{"createOrder", runningKey, 409, func(key string) response { return f.create(t, key, orderBody()) }},
		{"createOrder", newKey(), 402, func(key string) response {
			held.Release()
			return f.create(t, key, orderBody(withMember("payment_method", "pm_card_visa_chargeDeclined")))
		}},
		{"createOrder", newKey(), 422, func(key string) response {
			return f.create(t, key, orderBody(withMember("payment_method", "pm_card_nobody")))
		}},
		{"createOrder", newKey(), 503, func(key string) response {
			failing = f.stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Endpoint: createEndpoint, Times: stripetest.Always})
			return f.create(t, key, orderBody())
		}},
		{"createRefund", newKey(), 503, func(key string) response {
			failing.Release()
			failing = f.stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Endpoint: refundEndpoint, Times: stripetest.Always})
			return f.createRefund(t, order, key, part)
		}},
		{"createRefund", refundKey, 201, func(key string) response {
			failing.Release()
			return f.createRefund(t, order, key, part)
		}},
		{"createRefund", newKey(), 202, func(key string) response { return f.createRefund(t, order, key, part, prefer(respondAsync)) }},
		{"createRefund", newKey(), 422, func(key string) response { return f.createRefund(t, refundedThere, key, `{}`) }},
		{"getIdempotencyKey", refundKey, 200, func(key string) response { return f.getKey(t, key) }},
		{"createRefund", refundKey, 422, func(key string) response {
			idempotencytest.Reap(t, f.pool)
			return f.createRefund(t, order, key, part)
		}},
		{"createOrder", refundKey, 422, func(key string) response { return f.create(t, key, orderBody()) }},
	} {
		got := row.send(row.key)
		require.Equal(t, row.status, got.status, "%s: %s", row.operation, got.body)
		documented := operations[row.operation].Responses.Status(got.status)
		for name, link := range documented.Value.Links {
			linked := operations[link.Value.OperationID]
			path := linked.path
			for parameter, expression := range link.Value.Parameters {
				value := resolveExpression(t, expression.(string), row.key, got)
				path = strings.ReplaceAll(path, "{"+parameter+"}", url.PathEscape(value))
			}
			if strings.Contains(path, "//") || strings.HasSuffix(path, "/") {
				continue // the response does not have the member
			}
			delete(unresolved, documented.Ref+*documented.Value.Description+name)
			if linked.method == http.MethodPost {
				require.Equal(t, http.StatusCreated, f.send(t, linked.method, path, part, header("Idempotency-Key", newKey())).status, "%s of %s", name, row.operation)
			} else {
				require.Equal(t, http.StatusOK, f.get(t, path).status, "%s of %s: %s", name, row.operation, path)
			}
		}
	}
	require.Empty(t, unresolved, "no response above has what these links refer to")
}

// resolveExpression returns the value of a runtime expression of OpenAPI, "" if the
// response does not have it.
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
