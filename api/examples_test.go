package api_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"
)

// Every example in the contract is what it is an example of.
func TestExamplesAreValid(t *testing.T) {
	t.Parallel()
	c, err := loadContract()
	require.NoError(t, err)
	count := 0
	valid := func(where string, example any, examples openapi3.Examples, schema *openapi3.SchemaRef) {
		values := map[string]any{}
		if example != nil {
			values["example"] = example
		}
		for name, e := range examples {
			values[name] = e.Value.Value
		}
		require.NotEmpty(t, values, "%s has no example", where)
		for name, value := range values {
			require.NoError(t, schema.Value.VisitJSON(value, openapi3.EnableJSONSchema2020(), openapi3.EnableFormatValidation()), "%s, %s", where, name)
			count++
		}
	}
	for path, item := range c.doc.Paths.Map() {
		for method, operation := range item.Operations() {
			where := method + " " + path
			for _, p := range operation.Parameters {
				valid(where+" "+p.Value.Name, p.Value.Example, p.Value.Examples, p.Value.Schema)
			}
			if operation.RequestBody != nil {
				for mediaType, content := range operation.RequestBody.Value.Content {
					valid(where+" "+mediaType, content.Example, content.Examples, content.Schema)
				}
			}
			for status, response := range operation.Responses.Map() {
				for name, h := range response.Value.Headers {
					valid(where+" "+status+" "+name, h.Value.Example, h.Value.Examples, h.Value.Schema)
				}
				for mediaType, content := range response.Value.Content {
					valid(where+" "+status+" "+mediaType, content.Example, content.Examples, content.Schema)
				}
			}
		}
	}
	require.Greater(t, count, 50)
}

// The examples of requests do what the contract says beside them.
func TestExamplesOfRequestsAreAnswered(t *testing.T) {
	t.Parallel()
	a := start(t)
	c, err := loadContract()
	require.NoError(t, err)
	create := c.doc.Paths.Value("/v1/orders").Post
	examples := create.RequestBody.Value.Content.Get("application/json").Examples
	key := create.Parameters.GetByInAndName("header", "Idempotency-Key").Example.(string)
	for name, status := range map[string]int{"order": http.StatusCreated, "declined": http.StatusPaymentRequired} {
		sent, err := json.Marshal(examples[name].Value.Value)
		require.NoError(t, err)
		got := a.create(t, key+"-"+name, string(sent))
		require.Equal(t, status, got.status, name)
	}
	require.Len(t, examples, 2)

	want := create.Responses.Status(http.StatusCreated).Value.Content.Get("application/json").Examples["paid"].Value.Value.(map[string]any)
	want = maps.Clone(want)
	var got map[string]any
	order, err := json.Marshal(examples["order"].Value.Value)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(a.create(t, key, string(order)).body, &got))
	for _, name := range []string{"id", "payment_intent_id", "created_at", "paid_at"} {
		require.Contains(t, got, name)
		delete(got, name)
		delete(want, name)
	}
	shown, err := json.Marshal(want)
	require.NoError(t, err)
	answered, err := json.Marshal(got)
	require.NoError(t, err)
	require.JSONEq(t, string(shown), string(answered))
}
