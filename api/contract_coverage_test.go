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

type promiseCoverage struct {
	mu   sync.Mutex
	seen map[string]bool
}

var coverage = &promiseCoverage{seen: map[string]bool{}}

func (s *promiseCoverage) record(promise string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[promise] = true
}

// promise names a part of the contract. A component has one name, so one response covers
// it for all operations.
func promise(ref string, own ...string) string {
	if ref != "" {
		return ref
	}
	return strings.Join(own, " ")
}

// missing returns what no response has covered: each status, header and example of an
// operation or a component, and each problem.
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
				of := promise(response.Ref, operation.OperationID, status)
				promised[of] = true
				for name, h := range response.Value.Headers {
					promised[promise(h.Ref, of, "header", name)] = true
				}
				for _, e := range jsonExamples(response.Value.Content) {
					promised[promise(e.ref, of, "example", e.name)] = operation.OperationID != "getContractAsJSON" // an extract
				}
			}
			for _, e := range requestExamples(operation) {
				promised[promise(e.ref, operation.OperationID, "request example", e.name)] = true
			}
		}
	}
	for slug := range c.problems() {
		promised["problem "+slug] = true
	}
	maps.DeleteFunc(promised, func(promise string, required bool) bool { return !required || s.seen[promise] })
	return slices.Sorted(maps.Keys(promised))
}

// expectResponses sends each body to a path under a new key, and requires the status. It
// repeats a 201 and reads its Location. An added path needs this call.
func (f *fixture) expectResponses(t *testing.T, path string, want map[string]int) {
	t.Helper()
	for body, status := range want {
		key := newKey()
		got := f.send(t, http.MethodPost, path, body, header("Idempotency-Key", key))
		require.Equal(t, status, got.status, "%s: %s", body, got.body)
		if status == http.StatusCreated {
			again := f.send(t, http.MethodPost, path, body, header("Idempotency-Key", key))
			require.Equal(t, string(got.body), string(again.body))
			require.Equal(t, http.StatusOK, f.get(t, got.header.Get("Location")).status)
			require.Equal(t, got.header.Get("Location"), f.getKey(t, key).keyStatus(t).Response.Location)
		}
	}
}

type namedExample struct {
	name  string // "example" for one without a name
	ref   string // of the component, if it is one
	value any
}

func jsonExamples(content openapi3.Content) []namedExample {
	var all []namedExample
	for mediaType, c := range content {
		if !strings.HasSuffix(mediaType, "json") {
			continue
		}
		if c.Example != nil {
			all = append(all, namedExample{"example", "", c.Example})
		}
		for name, e := range c.Examples {
			all = append(all, namedExample{name, e.Ref, e.Value.Value})
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

func checkExamples(operation *openapi3.Operation, response *openapi3.ResponseRef, sent []byte, got response) error {
	var request any
	if json.Unmarshal(sent, &request) == nil {
		for _, e := range requestExamples(operation) {
			example, err := plainJSON(e.value)
			if err != nil {
				return err
			}
			if reflect.DeepEqual(example, request) {
				coverage.record(promise(e.ref, operation.OperationID, "request example", e.name))
			}
		}
	}
	var body any
	if json.Unmarshal(got.body, &body) != nil {
		return nil // a page, or the response to HEAD
	}
	of := promise(response.Ref, operation.OperationID, strconv.Itoa(got.status))
	for _, e := range jsonExamples(response.Value.Content) {
		example, err := plainJSON(e.value)
		if err != nil {
			return err
		}
		if matchesExample(example, body, "") {
			coverage.record(promise(e.ref, of, "example", e.name))
		}
	}
	return nil
}

func plainJSON(value any) (plain any, err error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("example: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	return plain, decoder.Decode(&plain)
}

// fixedMembers are the members whose text the API defines, and not the client, the
// provider or the time.
var fixedMembers = []string{
	"type", "title", "detail", "retry", "outcome", "code", "decline_code", "pointer",
	"status", "state", "currency", "operation", "object",
}

var providerIDs = regexp.MustCompile(`\b[a-z]{2}_[0-9A-Za-z]{16,}`)

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

func TestContract_violations(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := openContract(t)
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

	sent = orderBody(withMember("email", "ada"))
	req = f.request(t, http.MethodPost, "/v1/orders", sent, header("Idempotency-Key", newKey()))
	good, err = f.do(req)
	require.NoError(t, err)
	require.NoError(t, c.check(req, []byte(sent), good))
	for fault, test := range map[string]struct{ old, edited, want string }{
		"undocumented member of a problem": {"{", `{"remaining":1,`, "remaining"},
		"missing member of a problem":      {`"errors":`, `"error":`, "errors"},
		"problem of another operation":     {"validation-failed", "order-not-refundable", "order-not-refundable"},
	} {
		got := good
		got.body = bytes.Replace(good.body, []byte(test.old), []byte(test.edited), 1)
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
