package docs_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/api/docs"
)

func TestRoutes_headers(t *testing.T) {
	t.Parallel()
	site := served()
	for path, contentType := range map[string]string{
		"/docs":                 "text/html; charset=utf-8",
		"/docs/init.js":         "text/javascript; charset=utf-8",
		"/docs/scalar.js":       "text/javascript; charset=utf-8",
		"/docs/client.svg":      "image/svg+xml",
		"/openapi.service.yaml": "application/yaml",
		"/orders.arazzo.yaml":   "application/yaml",
	} {
		response := site.get(t, path, nil)
		require.Equal(t, http.StatusOK, response.Code, path)
		require.Equal(t, contentType, response.Header().Get("Content-Type"))
		require.Equal(t, "none", response.Header().Get("Accept-Ranges"))
		require.Equal(t, "no-cache", response.Header().Get("Cache-Control"))
		policy := response.Header().Get("Content-Security-Policy")
		require.Contains(t, policy, "default-src 'none'; script-src 'self'; ")
		require.Contains(t, policy, "connect-src 'self'; ")
		require.NotContains(t, policy, "unsafe-eval")
		require.NotContains(t, policy, "*")
		require.NotContains(t, policy, "http", "the policy names no other host")
	}
}

func TestPage_callsNoOtherHost(t *testing.T) {
	t.Parallel()
	site := served()
	page := site.get(t, "/docs", nil).Body.String()
	start := site.get(t, "/docs/init.js", nil).Body.String()

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
		require.Equal(t, http.StatusOK, site.get(t, script[1], nil).Code, script[1])
	}
}

func TestScalar_acceptEncoding(t *testing.T) {
	t.Parallel()
	site := served()
	for line, want := range map[string]bool{"": false, "br, GZIP;q=0.5, *;q=0.1": true, "gzip; q=0.000, identity": false, "not-gzip": false} {
		first := site.get(t, "/docs/init.js", http.Header{"Accept-Encoding": {line}, "Range": {"bytes=0-9"}, "If-Match": {`"another"`}})
		require.Equal(t, http.StatusOK, first.Code)
		require.Equal(t, want, first.Header().Get("Content-Encoding") == "gzip", line)
		again := site.get(t, "/docs/init.js", http.Header{"Accept-Encoding": {line}, "If-None-Match": {first.Header().Get("ETag")}})
		require.Equal(t, http.StatusNotModified, again.Code, line)
		require.Empty(t, again.Body.Bytes())
	}
}

func TestScalar_bothForms(t *testing.T) {
	t.Parallel()
	site := served()
	packed := site.get(t, "/docs/scalar.js", http.Header{"Accept-Encoding": {"gzip, deflate, br"}})
	require.Equal(t, "gzip", packed.Header().Get("Content-Encoding"))
	reader, err := gzip.NewReader(packed.Body)
	require.NoError(t, err)
	unpacked, err := io.ReadAll(reader)
	require.NoError(t, err)

	plain := site.get(t, "/docs/scalar.js", nil)
	require.Empty(t, plain.Header().Get("Content-Encoding"))
	require.Equal(t, "Accept-Encoding", plain.Header().Get("Vary"))
	require.True(t, bytes.Equal(unpacked, plain.Body.Bytes()))
	require.NotEqual(t, packed.Header().Get("ETag"), plain.Header().Get("ETag"), "each form has its own tag")
}

func TestScalar_versionOfLicence(t *testing.T) {
	t.Parallel()
	site := served()
	script := site.get(t, "/docs/scalar.js", nil).Body.String()
	banner := regexp.MustCompile(`@scalar/api-reference (\d+\.\d+\.\d+)`).FindStringSubmatch(script)
	require.NotNil(t, banner)
	licence, err := os.ReadFile("scalar.LICENSE")
	require.NoError(t, err)
	require.Contains(t, string(licence), "version "+banner[1])
}

func TestRoutes_otherPaths(t *testing.T) {
	t.Parallel()
	site := served()
	for _, path := range []string{"/docs/docs.go", "/docs/scalarxjs", "/docs/init.js.map", "/docs/scalar.js/x", "/docs/scalar.js.gz"} {
		require.Equal(t, http.StatusTeapot, site.get(t, path, nil).Code, path)
	}
}

type site struct{ router chi.Router }

// served is one site for all tests, because with the race detector the script of 3 MB takes a
// second to unpack.
var served = sync.OnceValue(func() site {
	router := chi.NewRouter()
	router.NotFound(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	docs.Routes(router, []byte("openapi: 3.1.0"), []byte("openapi: 3.1.0"), []byte("arazzo: 1.0.1"))
	return site{router}
})

func (s site) get(t *testing.T, path string, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	if header != nil {
		request.Header = header
	}
	response := httptest.NewRecorder()
	s.router.ServeHTTP(response, request)
	return response
}
