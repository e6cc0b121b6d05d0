package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"
)

// promiseCoverage records the promises of the contract that a response has fulfilled.
type promiseCoverage struct {
	mu   sync.Mutex
	seen map[string]bool
}

// coverage is that of all tests. TestMain reads it at the end.
var coverage = &promiseCoverage{seen: map[string]bool{}}

func (s *promiseCoverage) record(promise string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[promise] = true
}

// missing returns the promises that no response has fulfilled: each status of each
// operation, each of its headers and examples, and each problem.
func (s *promiseCoverage) missing() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := loadContract()
	if err != nil {
		return []string{err.Error()}
	}
	promised := map[string]bool{}
	for _, path := range c.doc.Paths.Map() {
		for _, operation := range path.Operations() {
			for status, response := range operation.Responses.Map() {
				if status == "default" {
					continue // for other versions: this one must document what it sends, see check
				}
				promise := operation.OperationID + " " + status
				promised[promise] = true
				for name := range response.Value.Headers {
					promised[promise+" header "+name] = true
				}
				for _, e := range jsonExamples(response.Value.Content) {
					promised[promise+" example "+e.name] = operation.OperationID != "getContractAsJSON" // an extract
				}
			}
			for _, e := range requestExamples(operation) {
				promised[operation.OperationID+" request example "+e.name] = true
			}
		}
	}
	for slug := range problems {
		promised["problem "+slug] = true
	}
	maps.DeleteFunc(promised, func(promise string, required bool) bool { return !required || s.seen[promise] })
	return slices.Sorted(maps.Keys(promised))
}

// namedExample is an example of a body in JSON.
type namedExample struct {
	name  string // "example" for one without a name
	value any
}

// jsonExamples returns the examples in JSON. Those of pages and scripts are extracts.
func jsonExamples(content openapi3.Content) []namedExample {
	var all []namedExample
	for mediaType, c := range content {
		if !strings.HasSuffix(mediaType, "json") {
			continue
		}
		if c.Example != nil {
			all = append(all, namedExample{"example", c.Example})
		}
		for name, e := range c.Examples {
			all = append(all, namedExample{name, e.Value.Value})
		}
	}
	return all
}

func requestExamples(operation *openapi3.Operation) []namedExample {
	if operation.RequestBody == nil {
		return nil
	}
	return jsonExamples(operation.RequestBody.Value.Content)
}

// checkExamples records the examples that this exchange matches.
func checkExamples(operation *openapi3.Operation, response *openapi3.Response, sent []byte, got response) error {
	var request any
	if json.Unmarshal(sent, &request) == nil {
		for _, e := range requestExamples(operation) {
			example, err := plainJSON(e.value)
			if err != nil {
				return err
			}
			if reflect.DeepEqual(example, request) {
				coverage.record(operation.OperationID + " request example " + e.name)
			}
		}
	}
	var body any
	if json.Unmarshal(got.body, &body) != nil {
		return nil // a page, or the response to HEAD
	}
	for _, e := range jsonExamples(response.Content) {
		example, err := plainJSON(e.value)
		if err != nil {
			return err
		}
		if matchesExample(example, body, "") {
			coverage.record(operation.OperationID + " " + strconv.Itoa(got.status) + " example " + e.name)
		}
	}
	return nil
}

// plainJSON makes a value from YAML comparable with one from JSON.
func plainJSON(value any) (plain any, err error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("example: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	return plain, decoder.Decode(&plain)
}

// fixedMembers are the members whose text the API defines. The text of others comes
// from the client or the provider, or depends on the time.
var fixedMembers = []string{
	"type", "title", "detail", "retry", "code", "decline_code", "pointer",
	"status", "state", "currency", "operation", "object",
}

// providerIDs matches the provider's ids in a text.
var providerIDs = regexp.MustCompile(`\b[a-z]{2}_[0-9A-Za-z]{16,}`)

// matchesExample reports whether a response has the example's members with the same
// types, and the same values of fixedMembers.
func matchesExample(example, actual any, name string) bool {
	switch e := example.(type) {
	case map[string]any:
		a, ok := actual.(map[string]any)
		if name == "metadata" {
			return ok // the client defines it
		}
		if !ok || len(a) != len(e) {
			return false
		}
		for member, value := range e {
			if other, there := a[member]; !there || !matchesExample(value, other, member) {
				return false
			}
		}
		return true
	case []any:
		a, ok := actual.([]any)
		if !ok || (len(e) == 0) != (len(a) == 0) {
			return false
		}
		for _, value := range e {
			if !slices.ContainsFunc(a, func(other any) bool { return matchesExample(value, other, name) }) {
				return false
			}
		}
		return true
	case string:
		a, ok := actual.(string)
		return ok && (!slices.Contains(fixedMembers, name) || providerIDs.ReplaceAllString(e, "") == providerIDs.ReplaceAllString(a, ""))
	case float64:
		return reflect.TypeOf(example) == reflect.TypeOf(actual) && (!slices.Contains(fixedMembers, name) || example == actual)
	default: // null, true and false
		return example == actual
	}
}

// The check against the contract finds each kind of violation.
func TestContract_violations(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, err := loadContract()
	require.NoError(t, err)
	sent := orderBody()
	req := f.request(t, http.MethodPost, "/v1/orders", sent, header("Idempotency-Key", newKey()))
	good, err := f.do(req)
	require.NoError(t, err)
	require.NoError(t, c.check(req, []byte(sent), good))

	for fault, test := range map[string]struct {
		change func(*response)
		want   string
	}{
		"undocumented status":    {func(got *response) { got.status = http.StatusAlreadyReported }, "does not document status"},
		"undocumented header":    {func(got *response) { got.header.Set("X-Total", "1") }, "does not document the header X-Total"},
		"missing header":         {func(got *response) { got.header.Del("Location") }, "Location"},
		"wrong header":           {func(got *response) { got.header.Set("Location", "https://elsewhere.example") }, "Location"},
		"undocumented member":    {func(got *response) { got.body = bytes.Replace(got.body, []byte("{"), []byte(`{"secret":1,`), 1) }, "secret"},
		"missing member":         {func(got *response) { got.body = bytes.Replace(got.body, []byte(`"amount":4300,`), nil, 1) }, "amount"},
		"undocumented value":     {func(got *response) { got.body = bytes.Replace(got.body, []byte(`"paid"`), []byte(`"lost"`), 1) }, "status"},
		"member of another type": {func(got *response) { got.body = bytes.Replace(got.body, []byte("4300"), []byte(`"4300"`), 1) }, "amount"},
	} {
		got := response{status: good.status, header: good.header.Clone(), body: bytes.Clone(good.body)}
		test.change(&got)
		require.ErrorContains(t, c.check(req, []byte(sent), got), test.want, fault)
	}
}

func TestMatchesExample_differences(t *testing.T) {
	t.Parallel()
	const example = `{"status":"paid","id":"a","items":[{"sku":"x"}],"metadata":{"n":"1"},"paid_at":null}`
	for body, want := range map[string]bool{
		example: true,
		`{"status":"paid","id":"b","items":[{"a":1},{"sku":"y"}],"metadata":{},"paid_at":null}`:      true,
		`{"status":"pending","id":"a","items":[{"sku":"x"}],"metadata":{"n":"1"},"paid_at":null}`:    false,
		`{"status":"paid","id":1,"items":[{"sku":"x"}],"metadata":{"n":"1"},"paid_at":null}`:         false,
		`{"status":"paid","id":"a","items":[],"metadata":{"n":"1"},"paid_at":null}`:                  false,
		`{"status":"paid","id":"a","items":[{"sku":"x"}],"metadata":{"n":"1"},"paid_at":"now"}`:      false,
		`{"status":"paid","id":"a","items":[{"sku":"x"}],"metadata":{"n":"1"}}`:                      false,
		`{"status":"paid","id":"a","items":[{"sku":"x"}],"metadata":{"n":"1"},"paid_at":null,"x":1}`: false,
	} {
		var e, a any
		require.NoError(t, json.Unmarshal([]byte(example), &e))
		require.NoError(t, json.Unmarshal([]byte(body), &a))
		require.Equal(t, want, matchesExample(e, a, ""), body)
	}
}
