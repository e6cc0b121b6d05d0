package docs_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	ordersapi "example.com/orders-api"
	"example.com/orders-api/cmd/playground/internal/docs"
)

func get(t *testing.T, path string) *httptest.ResponseRecorder {
	t.Helper()
	site := docs.Mount(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	response := httptest.NewRecorder()
	site.ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return response
}

func TestPage_callsNoOtherHost(t *testing.T) {
	t.Parallel()
	response := get(t, "/docs")
	require.Equal(t, "text/html; charset=utf-8", response.Header().Get("Content-Type"))
	policy := response.Header().Get("Content-Security-Policy")
	require.Contains(t, policy, "default-src 'none'; script-src 'self'; ")
	require.Contains(t, policy, "connect-src 'self'; ")
	require.NotRegexp(t, `unsafe-eval|\*|http`, policy)
	page := response.Body.String()
	start := get(t, "/docs/init.js").Body.String()

	for _, content := range []string{page, start} {
		require.NotRegexp(t, `(?i)\bhttps?:`, content)
		require.NotRegexp(t, `["'(=]//`, content, "a host without a scheme")
	}
	for _, option := range []string{
		"withDefaultFonts: false",
		"telemetry: false",
		"agent: { disabled: true }",
		"hideClientButton: true",
	} {
		require.Contains(t, start, option)
	}
	require.NotContains(t, start, "proxyUrl")

	scripts := regexp.MustCompile(`<script src="([^"]+)"></script>`).FindAllStringSubmatch(page, -1)
	require.Len(t, scripts, strings.Count(page, "<script"), "the policy forbids inline scripts")
	for _, script := range scripts {
		served := get(t, script[1])
		require.Equal(t, http.StatusOK, served.Code, script[1])
		require.Equal(t, "text/javascript; charset=utf-8", served.Header().Get("Content-Type"))
	}
}

// The page gives a sample the key of the operation's first example, so both must be the same request.
func TestSamples(t *testing.T) {
	t.Parallel()
	var contract struct {
		Paths map[string]map[string]struct {
			Samples     []struct{ Source string } `yaml:"x-codeSamples"`
			RequestBody struct {
				Content map[string]struct{ Examples yaml.Node }
			} `yaml:"requestBody"`
		}
	}
	require.NoError(t, yaml.Unmarshal(ordersapi.Spec, &contract))
	compared := 0
	for path, operations := range contract.Paths {
		for _, operation := range operations {
			require.Len(t, operation.Samples, 1, path)
			source := operation.Samples[0].Source
			require.Contains(t, source, "http://localhost:8080/v1/", "the page replaces the host")
			if examples := operation.RequestBody.Content["application/json"].Examples; len(examples.Content) > 0 {
				var first struct{ Value any }
				require.NoError(t, examples.Content[1].Decode(&first))
				value, err := json.Marshal(first.Value)
				require.NoError(t, err)
				body := regexp.MustCompile(`(?s)--json '(.*)'`).FindStringSubmatch(source)
				require.NotNil(t, body, path)
				require.JSONEq(t, string(value), body[1], path)
				compared++
			}
		}
	}
	require.NotZero(t, compared)
}

// A reader of the contract does not operate the API.
func TestContract_noCommandOfOperators(t *testing.T) {
	t.Parallel()
	require.NotRegexp(t, "`(bin/)?orders [a-z]", string(ordersapi.Spec))
}
