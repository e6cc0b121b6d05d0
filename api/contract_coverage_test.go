package api_test

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/api"
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
