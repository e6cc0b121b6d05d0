package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	ordersapi "example.com/orders-api"
	"example.com/orders-api/api"
	"example.com/orders-api/client"
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

// promise names a part of the contract, a component for all its operations.
func promise(ref string, own ...string) string {
	if ref != "" {
		return ref
	}
	return strings.Join(own, " ")
}

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
				if status == "default" || status == "429" { // deploy/nginx answers 429
					continue
				}
				of := promise(response.Ref, operation.OperationID, status)
				promised[of] = true
				for name, h := range response.Value.Headers {
					promised[promise(h.Ref, of, "header", name)] = true
				}
			}
		}
	}
	for slug := range api.DocumentedProblems() {
		promised["problem "+slug] = slug != "rate-limited"
	}
	maps.DeleteFunc(promised, func(promise string, ours bool) bool { return !ours || s.seen[promise] })
	return slices.Sorted(maps.Keys(promised))
}

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
			require.EqualValues(t, got.header.Get("Location"), f.getKey(t, key).keyStatus(t).Response.Location)
		}
	}
}

// The check finds what it is for. The validator's own tests show the rest.
func TestContract_violations(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := openContract(t)
	created, invalid := orderBody(), orderBody(withMember("email", "ada"))
	inBody := func(old, edited string) func(*response) {
		return func(got *response) { got.body = bytes.Replace(got.body, []byte(old), []byte(edited), 1) }
	}
	for fault, test := range map[string]struct {
		sent   string
		change func(*response)
		want   string
	}{
		"undocumented status":          {created, func(got *response) { got.status = http.StatusAlreadyReported }, "does not document status"},
		"undocumented header":          {created, func(got *response) { got.header.Set("X-Total", "1") }, "does not document the header X-Total"},
		"missing header":               {created, func(got *response) { got.header.Del("Location") }, "Location"},
		"cached":                       {created, func(got *response) { got.header.Set("Cache-Control", "private") }, "Cache-Control"},
		"undocumented member":          {created, inBody("{", `{"secret":1,`), "secret"},
		"undocumented value":           {created, inBody(`"paid"`, `"lost"`), "status"},
		"missing member of a problem":  {invalid, inBody(`"errors":`, `"error":`), "errors"},
		"problem of another operation": {invalid, inBody("validation-failed", "order-not-refundable"), "order-not-refundable"},
	} {
		req := f.request(t, http.MethodPost, "/v1/orders", test.sent, header("Idempotency-Key", newKey()))
		got, err := f.do(req)
		require.NoError(t, err)
		require.NoError(t, c.check(req, []byte(test.sent), got))
		test.change(&got)
		require.ErrorContains(t, c.check(req, []byte(test.sent), got), test.want, fault)
	}
}

func (c contract) checkProblem(got response) (slug string, err error) {
	if got.status < 400 {
		return "", nil
	}
	if contentType := got.header.Get("Content-Type"); contentType != "application/problem+json" {
		return "", fmt.Errorf("status %d as %q", got.status, contentType)
	}
	if got.head {
		return "", nil
	}
	var p problem
	if err := json.Unmarshal(got.body, &p); err != nil {
		return "", err
	}
	slug = p.slug()
	waits := p.Retry == client.RetrySameKey && slug != "internal-error"
	switch {
	case p.Status != got.status:
		err = fmt.Errorf("status %d, and %d in the body", got.status, p.Status)
	case (got.header.Get("Retry-After") != "") != waits:
		err = fmt.Errorf("Retry-After %q", got.header.Get("Retry-After"))
	case got.status == http.StatusMethodNotAllowed && got.header.Get("Allow") == "":
		err = errors.New("no Allow")
	case p.RequestID == "":
	case p.RequestID != got.header.Get("X-Request-Id"):
		err = fmt.Errorf("request_id %q", p.RequestID)
	case got.header.Get("Idempotent-Replayed") != "":
		err = errors.New("a replay of what is not stored")
	}
	if err == nil {
		err = c.checkProblemSchema(slug, got.body)
	}
	if err != nil {
		return slug, fmt.Errorf("problem %q: %w", slug, err)
	}
	coverage.record("problem " + slug)
	return slug, nil
}

func (c contract) checkProblemSchema(slug string, body []byte) error {
	own, known := api.DocumentedProblems()[slug]
	if !known {
		return errors.New("not documented")
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err == nil {
		err = c.schemas.validate(c.doc.Components.Schemas["ProblemDetails"].Value, value)
	}
	if err != nil {
		return err
	}
	members := value.(map[string]any)
	for name := range members {
		if _, known := own.Members[name]; !known {
			err = errors.Join(err, fmt.Errorf("member %s is not documented", name))
		}
	}
	for name, required := range own.Members {
		if _, present := members[name]; required && !present {
			err = errors.Join(err, fmt.Errorf("no member %s", name))
		}
	}
	for name, allowed := range map[string][]string{"status": {strconv.Itoa(own.Status)}, "retry": own.Retry, "outcome": own.Outcome} {
		if got := fmt.Sprint(members[name]); !slices.Contains(allowed, got) {
			err = errors.Join(err, fmt.Errorf("%s %s", name, got))
		}
	}
	return err
}

type problem struct{ client.Problem }

func (p problem) slug() string { return strings.TrimPrefix(p.Type, "/problems/") }

func (p problem) pointers() []string {
	var pointers []string
	for _, e := range p.Errors {
		pointers = append(pointers, e.Pointer)
	}
	return pointers
}

func checkDocumentedProblem(of string, content openapi3.Content, slug string) error {
	if slug == "" {
		return nil
	}
	problems := content["application/problem+json"]
	examples := []any{problems.Example}
	for _, e := range problems.Examples {
		examples = append(examples, e.Value.Value)
	}
	for _, e := range examples {
		if example, ok := e.(map[string]any); ok && example["type"] == "/problems/"+slug {
			return nil
		}
	}
	return fmt.Errorf("%s has no example of %s", of, slug)
}

func TestProblemPages_complete(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	types := api.DocumentedProblems()
	pages := slices.Collect(maps.Keys(types))
	for _, match := range regexp.MustCompile(`/problems/([a-z]+(?:-[a-z]+)*)`).FindAllSubmatch(ordersapi.Spec, -1) {
		require.Contains(t, pages, string(match[1]))
	}
	index := f.get(t, "/problems", header("Authorization"))
	require.Equal(t, http.StatusOK, index.status)
	require.Equal(t, len(pages), strings.Count(string(index.body), "\n"))
	for slug, documented := range types {
		require.Regexp(t, fmt.Sprintf(`(?m)^%d +%s +/problems/%s$`, documented.Status, strings.Join(documented.Retry, ", "), slug), string(index.body))
		got := f.get(t, "/problems/"+slug, header("Authorization"))
		require.Equal(t, http.StatusOK, got.status, slug)
		require.Equal(t, "text/plain; charset=utf-8", got.header.Get("Content-Type"))
		text, err := os.ReadFile("problems/" + slug + ".md")
		require.NoError(t, err)
		require.Equal(t, strings.ReplaceAll(string(text), ".md)", ")"), string(got.body))
		require.NotContains(t, string(text), "//", "the page names no other host")
		for _, link := range regexp.MustCompile(`\]\((.*?)\)`).FindAllSubmatch(got.body, -1) {
			require.Contains(t, pages, string(link[1]), "a link of %s", slug)
		}
	}
}
