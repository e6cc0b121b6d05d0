package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
			for name, example := range operation.RequestBody.Value.Content.Get("application/json").Examples {
				name = operation.OperationID + " " + name
				sent, err := json.Marshal(example.Value.Value)
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

// The linters of make contract validate examples too, but accept members that are not documented.
func TestExamples_responses(t *testing.T) {
	t.Parallel()
	c, checked := openContract(t), 0
	for path, item := range c.doc.Paths.Map() {
		for method, operation := range item.Operations() {
			for status, response := range operation.Responses.Map() {
				for _, content := range response.Value.Content {
					for name, example := range content.Examples {
						require.NoError(t, c.schemas.validate(content.Schema.Value, example.Value.Value), "%s %s %s: %s", method, path, status, name)
						checked++
					}
				}
			}
		}
	}
	require.NotZero(t, checked)
}
