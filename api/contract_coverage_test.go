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
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	ordersapi "example.com/orders-api"
	"example.com/orders-api/api"
	"example.com/orders-api/client"
	"example.com/orders-api/orders/orderstest"
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

// The linters of make contract validate examples too, but accept members that are not documented.
func TestExamples(t *testing.T) {
	t.Parallel()
	f, c := newFixture(t), openContract(t)
	checked := 0
	refusals := map[string]int{"createOrder declined": http.StatusPaymentRequired}
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
			if operation.RequestBody == nil {
				continue
			}
			for name, example := range operation.RequestBody.Value.Content.Get("application/json").Examples {
				name = operation.OperationID + " " + name
				sent, err := json.Marshal(example.Value.Value)
				require.NoError(t, err)
				if path == webhookPath {
					requireReceived(t, f.deliver(t, string(sent), signatureHeader(orderstest.WebhookSecret, string(sent), time.Now())))
					continue
				}
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
	require.NotZero(t, checked)
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
		require.Equal(t, string(text), string(got.body))
		require.Contains(t, string(text), fmt.Sprintf("\n    HTTP/1.1 %d ", documented.Status))
		require.NotContains(t, string(text), "//", "the page names no other host")
		for _, related := range regexp.MustCompile(`\]\(([^)]*)\.md\)`).FindAllStringSubmatch(string(text), -1) {
			require.Contains(t, pages, related[1], slug)
		}
	}
}
