package api_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	ordersapi "example.com/orders-api"
	"example.com/orders-api/payments/stripetest"
)

// Each parameter, body and header has a valid example. The validation of the contract
// includes those of bodies.
func TestExamples_valid(t *testing.T) {
	t.Parallel()
	c := openContract(t)
	valid := func(where, name string, p openapi3.Parameter) {
		values := []any{}
		if p.Example != nil {
			values = append(values, p.Example)
		}
		for _, example := range p.Examples {
			values = append(values, example.Value.Value)
		}
		require.NotEmpty(t, values, "%s has no example of %s", where, name)
		for _, value := range values {
			require.NoError(t, validate(p.Schema.Value, value), "%s: %s", where, name)
		}
	}
	for path, item := range c.doc.Paths.Map() {
		for method, operation := range item.Operations() {
			where := method + " " + path
			for _, p := range operation.Parameters {
				valid(where, p.Value.Name, *p.Value)
			}
			content := []openapi3.Content{}
			if operation.RequestBody != nil {
				content = append(content, operation.RequestBody.Value.Content)
			}
			for _, response := range operation.Responses.Map() {
				content = append(content, response.Value.Content)
				for name, h := range response.Value.Headers {
					valid(where, name, h.Value.Parameter)
				}
			}
			for _, c := range content {
				for mediaType, body := range c {
					require.True(t, body.Example != nil || len(body.Examples) > 0, "%s has no example of %s", where, mediaType)
				}
			}
		}
	}
}

func TestExamples_requests(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := openContract(t)
	refusals := map[string]int{"createOrder declined": http.StatusPaymentRequired}
	for path, item := range c.doc.Paths.Map() {
		for method, operation := range item.Operations() {
			if operation.Parameters.GetByInAndName("header", "Idempotency-Key") == nil {
				continue
			}
			for _, example := range requestExamples(operation) {
				name := operation.OperationID + " " + example.name
				sent, err := json.Marshal(example.value)
				require.NoError(t, err)
				order := f.create(t, newKey(), orderBody()).order(t).ID.String()
				got := f.send(t, method, strings.ReplaceAll(path, "{id}", order), string(sent), header("Idempotency-Key", newKey()))
				if status, refused := refusals[name]; refused {
					require.Equal(t, status, got.status, name)
				} else {
					require.Less(t, got.status, 300, "%s: %s", name, got.body)
				}
			}
		}
	}
}

func TestExamples_order(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := openContract(t)
	create := c.doc.Paths.Value("/v1/orders").Post
	key := create.Parameters.GetByInAndName("header", "Idempotency-Key").Example.(string)
	order, err := json.Marshal(create.RequestBody.Value.Content.Get("application/json").Examples["order"].Value.Value)
	require.NoError(t, err)

	want := create.Responses.Status(http.StatusCreated).Value.Content.Get("application/json").Examples["paid"].Value.Value.(map[string]any)
	want = maps.Clone(want)
	var got map[string]any
	require.NoError(t, json.Unmarshal(f.create(t, key, string(order)).body, &got))
	for _, name := range []string{"id", "payment_intent_id", "created_at", "paid_at"} {
		require.Contains(t, got, name)
		delete(got, name)
		delete(want, name)
	}
	shown, err := json.Marshal(want)
	require.NoError(t, err)
	received, err := json.Marshal(got)
	require.NoError(t, err)
	require.JSONEq(t, string(shown), string(received))
}

// Responses that no other test receives, see promiseCoverage.
func TestExamples_otherResponses(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	invalid := f.create(t, newKey(), orderBody(withMember("email", "ada"), withMember("items", []any{
		map[string]any{"sku": "TEA-CANARY", "quantity": 0, "unit_amount": 1250},
	})))
	require.Len(t, invalid.problem(t).Errors, 2)

	f.stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Endpoint: createEndpoint, Times: stripetest.Always})
	key := newKey()
	require.Equal(t, http.StatusServiceUnavailable, f.create(t, key, orderBody()).status)
	var id string
	require.NoError(t, f.pool.QueryRow(t.Context(), "SELECT id FROM orders").Scan(&id))
	pending := f.get(t, "/v1/orders/"+id).order(t)
	require.Equal(t, "pending", string(pending.Status))
	require.Nil(t, pending.PaymentIntentID)
}

// Published schemas of responses are open for later versions, those of requests are
// closed. They do not share objects.
func TestContract_openResponses(t *testing.T) {
	t.Parallel()
	doc, err := openapi3.NewLoader().LoadFromData(ordersapi.Spec)
	require.NoError(t, err)
	requests := map[*openapi3.Schema]bool{}
	for path, item := range doc.Paths.Map() {
		for _, operation := range item.Operations() {
			if operation.RequestBody == nil || operation.OperationID == "receiveStripeEvent" {
				continue // Stripe defines its events
			}
			for _, s := range schemasIn(operation.RequestBody.Value.Content.Get("application/json").Schema) {
				if s.Type.Includes("object") {
					requests[s] = true
					require.True(t, s.AdditionalProperties.Schema != nil || s.AdditionalProperties.Has != nil && !*s.AdditionalProperties.Has, "a request of %s is open: %v", path, s.Properties)
				}
			}
		}
	}
	require.NotEmpty(t, requests)
	problem := doc.Components.Schemas["ProblemDetails"].Value
	problem.If, problem.Then = nil, nil // the members of known types, which generators ignore
	for _, s := range responseSchemas(doc) {
		require.Empty(t, append(s.OneOf, s.AnyOf...), "generated clients reject an unknown variant: %s", s.Description)
		require.False(t, requests[s], "a request has it as well: %s", s.Description)
		require.True(t, s.AdditionalProperties.Has == nil || *s.AdditionalProperties.Has, "closed: %s", s.Description)
		for _, value := range s.Enum { // retry alone is a closed enum
			require.Contains(t, []any{"same-key", "corrected", "new-key", "never"}, value, s.Description)
		}
	}
}

// ProblemDetails is the schema of each problem response, and requires no member that an
// unknown type may lack.
func TestContract_problemDetails(t *testing.T) {
	t.Parallel()
	c := openContract(t)
	for path, item := range c.doc.Paths.Map() {
		for method, operation := range item.Operations() {
			require.NotNil(t, operation.Responses.Default(), "%s %s", method, path)
			require.Equal(t, "#/components/responses/UnexpectedProblem", operation.Responses.Default().Ref, "%s %s", method, path)
			for status, response := range operation.Responses.Map() {
				if content := response.Value.Content.Get("application/problem+json"); content != nil {
					require.Equal(t, "#/components/schemas/ProblemDetails", content.Schema.Ref, "%s %s %s", method, path, status)
				}
			}
		}
	}
	schemas := c.doc.Components.Schemas
	details := schemas["ProblemDetails"].Value
	require.Equal(t, []string{"type", "title", "status", "detail", "retry", "outcome"}, details.Required)
	for _, variant := range schemas["Problem"].Value.OneOf {
		for name, member := range variant.Value.Properties {
			require.Contains(t, details.Properties, name, variant.Ref)
			require.Equal(t, details.Properties[name].Value.Type, member.Value.Type, "%s of %s", name, variant.Ref)
		}
	}
}
