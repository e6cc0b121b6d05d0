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

// sightings are the promises of the contract that some test has seen kept.
type promiseCoverage struct {
	mu   sync.Mutex
	seen map[string]bool
}

// coverage is for the whole package: TestMain asks it at the end.
var coverage = &promiseCoverage{seen: map[string]bool{}}

func (s *promiseCoverage) record(promise string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[promise] = true
}

// missing returns the promises that nobody has seen: each status of each
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
				promise := operation.OperationID + " " + status
				promised[promise] = true
				for name := range response.Value.Headers {
					promised[promise+" header "+name] = true
				}
				for _, e := range jsonExamples(response.Value.Content) {
					promised[promise+" example "+e.name] = true
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
	maps.DeleteFunc(promised, func(promise string, _ bool) bool { return s.seen[promise] })
	return slices.Sorted(maps.Keys(promised))
}

// namedExample is an example of a body in JSON.
type namedExample struct {
	name  string // "example" for one without a name
	value any
}

// jsonExamples returns the examples in JSON. Pages and scripts are shown in
// extracts.
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

// checkExamples notes the examples that this exchange is like. An example that
// no exchange of the whole suite is like is a promise that nobody keeps.
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
		return nil // a page, or the answer to HEAD
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

// plainJSON makes what came from YAML comparable with what came from JSON.
func plainJSON(value any) (plain any, err error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("example: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	return plain, decoder.Decode(&plain)
}

// chosen are the members whose text the API chooses from what it knows. The
// text of others is the client's, the provider's or the moment's.
var fixedMembers = []string{
	"type", "title", "detail", "retry", "code", "decline_code", "pointer", "message",
	"status", "state", "currency", "operation", "object",
}

// named is an id of the provider's in a text.
var providerIDs = regexp.MustCompile(`\b[a-z]{2}_[0-9A-Za-z]{16,}`)

// like says whether an answer has what the example has: the same members of the
// same types, and of those that are chosen the same values.
func matchesExample(example, answer any, name string) bool {
	switch e := example.(type) {
	case map[string]any:
		a, ok := answer.(map[string]any)
		if name == "metadata" {
			return ok // the client's own
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
		a, ok := answer.([]any)
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
		a, ok := answer.(string)
		return ok && (!slices.Contains(fixedMembers, name) || providerIDs.ReplaceAllString(e, "") == providerIDs.ReplaceAllString(a, ""))
	case float64:
		return reflect.TypeOf(example) == reflect.TypeOf(answer) && (!slices.Contains(fixedMembers, name) || example == answer)
	default: // null, true and false
		return example == answer
	}
}

// A check that lets everything pass would be green too.
func TestTheCheckAgainstTheContractNotices(t *testing.T) {
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
		says   string
	}{
		"a status that is not documented":   {func(got *response) { got.status = http.StatusAlreadyReported }, "does not document status"},
		"a header that is not documented":   {func(got *response) { got.header.Set("X-Total", "1") }, "does not document the header X-Total"},
		"a header that is missing":          {func(got *response) { got.header.Del("Location") }, "Location"},
		"a header that is not as it should": {func(got *response) { got.header.Set("Location", "https://elsewhere.example") }, "Location"},
		"a member that is not documented":   {func(got *response) { got.body = bytes.Replace(got.body, []byte("{"), []byte(`{"secret":1,`), 1) }, "secret"},
		"a member that is missing":          {func(got *response) { got.body = bytes.Replace(got.body, []byte(`"amount":4300,`), nil, 1) }, "amount"},
		"a member of another type":          {func(got *response) { got.body = bytes.Replace(got.body, []byte("4300"), []byte(`"4300"`), 1) }, "amount"},
	} {
		got := response{status: good.status, header: good.header.Clone(), body: bytes.Clone(good.body)}
		test.change(&got)
		require.ErrorContains(t, c.check(req, []byte(sent), got), test.says, fault)
	}
}

func TestWhatIsLikeAnExample(t *testing.T) {
	t.Parallel()
	const example = `{"status":"paid","id":"a","items":[{"sku":"x"}],"metadata":{"n":"1"},"paid_at":null}`
	for answer, want := range map[string]bool{
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
		require.NoError(t, json.Unmarshal([]byte(answer), &a))
		require.Equal(t, want, matchesExample(e, a, ""), answer)
	}
}
