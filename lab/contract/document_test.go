package contract_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	ordersapi "example.com/orders-api"
	"example.com/orders-api/client"
)

func load(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(ordersapi.Spec)
	require.NoError(t, err)
	return doc
}

// Each parameter, body and header has a valid example. The validation of the contract
// includes those of bodies.
func TestExamples_valid(t *testing.T) {
	t.Parallel()
	doc := load(t)
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
			require.NoError(t, p.Schema.Value.VisitJSON(value, openapi3.EnableJSONSchema2020(), openapi3.EnableFormatValidation()), "%s: %s", where, name)
		}
	}
	for path, item := range doc.Paths.Map() {
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

// Published schemas of responses are open for later versions, those of requests are
// closed. They do not share objects.
func TestContract_openResponses(t *testing.T) {
	t.Parallel()
	doc := load(t)
	requests := map[*openapi3.Schema]bool{}
	for path, item := range doc.Paths.Map() {
		for _, operation := range item.Operations() {
			if operation.RequestBody == nil {
				continue
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
	doc := load(t)
	for path, item := range doc.Paths.Map() {
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
	require.Equal(t, []string{"type", "title", "status", "detail", "retry", "outcome"}, doc.Components.Schemas["ProblemDetails"].Value.Required)
}

func responseSchemas(doc *openapi3.T) []*openapi3.Schema {
	var schemas []*openapi3.Schema
	for _, path := range doc.Paths.Map() {
		for _, operation := range path.Operations() {
			for _, response := range operation.Responses.Map() {
				for _, content := range response.Value.Content {
					schemas = append(schemas, schemasIn(content.Schema)...)
				}
				for _, h := range response.Value.Headers {
					schemas = append(schemas, schemasIn(h.Value.Schema)...)
				}
			}
		}
	}
	return schemas
}

func schemasIn(ref *openapi3.SchemaRef) []*openapi3.Schema {
	var schemas []*openapi3.Schema
	_ = ref.WalkSubtree(func(_ string, schema *openapi3.SchemaRef) error { // its only errors are those of the function
		schemas = append(schemas, schema.Value)
		return nil
	})
	return schemas
}

// Package client has a method for each operation of an API key, and a field for each member of its schemas.
func TestClient_complete(t *testing.T) {
	t.Parallel()
	doc := load(t)
	for path, item := range doc.Paths.Map() {
		for _, operation := range item.Operations() {
			if operation.Security != nil { // no API key
				continue
			}
			name := strings.ToUpper(operation.OperationID[:1]) + operation.OperationID[1:]
			_, found := reflect.TypeFor[*client.Client]().MethodByName(strings.ReplaceAll(name, "IdempotencyKey", "Key"))
			require.True(t, found, "%s of %s", name, path)
		}
	}
	for name, value := range map[string]any{
		"OrderRequest": client.OrderParams{}, "OrderRequestItem": client.Item{}, "Order": client.Order{}, "OrderItem": client.Item{},
		"OrderList": client.OrderPage{}, "Dispute": client.Dispute{}, "RefundRequest": client.RefundParams{}, "Refund": client.Refund{},
		"RefundList": client.RefundPage{}, "KeyStatus": client.KeyStatus{}, "ResourceLink": client.Resource{},
		"ProblemDetails": client.Problem{}, "Event": client.Event{},
	} {
		var members []string
		for _, field := range reflect.VisibleFields(reflect.TypeOf(value)) {
			member, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			members = append(members, member)
		}
		require.ElementsMatch(t, slices.Collect(maps.Keys(doc.Components.Schemas[name].Value.Properties)), members, name)
	}
}

var zeros = regexp.MustCompile(`0*Z"`) // time.Time omits them

// The types of package client have every member of the API's responses, and write the same members again.
func TestClient_contract(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	read := func(path string) response { return s.send(t, http.MethodGet, path, "", "", false) }
	order := s.pay(t, newKey(), "pm_card_visa", false).location
	refundKey := newKey()
	refund := func(key, body string) response {
		return s.send(t, http.MethodPost, order+"/refunds", key, body, false)
	}
	declined := s.pay(t, newKey(), "pm_card_visa_chargeDeclinedInsufficientFunds", false)
	var problem client.Problem
	require.NoError(t, json.Unmarshal(declined.body, &problem))
	for _, test := range []struct {
		got  response
		into any
	}{
		{read(order), &client.Order{}},
		{read("/v1/orders/" + problem.OrderID), &client.Order{}},
		{read("/v1/orders"), &client.OrderPage{}},
		{refund(refundKey, `{"amount":1000,"reason":"duplicate"}`), &client.Refund{}},
		{read("/v1/idempotency-keys/" + refundKey), &client.KeyStatus{}},
		{s.pay(t, newKey(), "pm_card_threeDSecure2Required", false), &client.KeyStatus{}},
		{declined, &client.Problem{}},
		{refund(newKey(), `{"amount":9999}`), &client.Problem{}},
	} {
		decoder := json.NewDecoder(bytes.NewReader(test.got.body))
		decoder.DisallowUnknownFields()
		require.NoError(t, decoder.Decode(test.into), "%s", test.got.body)
		passedOn, err := json.Marshal(test.into)
		require.NoError(t, err)
		require.JSONEq(t, zeros.ReplaceAllString(string(test.got.body), `Z"`), zeros.ReplaceAllString(string(passedOn), `Z"`))
	}

	server := httptest.NewServer(s.router)
	defer server.Close()
	c, err := client.New(client.Config{BaseURL: server.URL, APIKey: s.apiKey})
	require.NoError(t, err)
	defer c.Close()
	params := client.OrderParams{
		Email: "ada@example.com", Currency: "usd", PaymentMethod: "pm_card_visa",
		Items:    []client.Item{{SKU: "tea", Description: "Assam", Quantity: 2, UnitAmount: 1250}},
		Metadata: map[string]string{"note": "a\x00b"},
	}
	created, err := c.CreateOrder(t.Context(), client.NewKey(), params)
	require.NoError(t, err)
	require.Equal(t, params.Items, created.Items)
	require.Equal(t, params.Metadata, created.Metadata)
}
