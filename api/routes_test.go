package api_test

import (
	"bytes"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	ordersapi "example.com/orders-api"
	"example.com/orders-api/api"
	"example.com/orders-api/client"
)

func (f *fixture) routes(t *testing.T) map[string][]string {
	t.Helper()
	routes := map[string][]string{}
	require.NoError(t, chi.Walk(f.router, func(method, pattern string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if !slices.Contains(routes[pattern], method) {
			routes[pattern] = append(routes[pattern], method)
		}
		return nil
	}))
	return routes
}

func TestRouter_contract(t *testing.T) {
	t.Parallel()
	c := openContract(t)
	documented := map[string][]string{}
	for path, item := range c.doc.Paths.Map() {
		documented[path] = slices.Sorted(maps.Keys(item.Operations()))
	}
	served := newFixture(t).routes(t)
	for _, methods := range served {
		slices.Sort(methods)
	}
	require.Equal(t, documented, served)
}

func examplePath(pattern string) string {
	return strings.NewReplacer(
		"{id}", uuid.NewString(), "{refund_id}", uuid.NewString(),
		"{key}", "a-key-that-is-long-enough", "{slug}", "not-found",
	).Replace(pattern)
}

func TestRouter_unknownParameters(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := newKey()
	before := f.rowCounts(t)
	for pattern, methods := range f.routes(t) {
		path := examplePath(pattern)
		for _, method := range methods {
			for query, code := range map[string]string{
				"dry_run": "unknown_parameter",
				"%zz":     "invalid_format",
			} {
				body := ""
				if method == http.MethodPost {
					body = orderBody()
				}
				got := f.send(t, method, path+"?"+query, body, header("Idempotency-Key", key))
				p := got.problem(t)
				require.Equal(t, "validation-failed", p.slug(), "%s %s?%s", method, path, query)
				require.Equal(t, code, p.Errors[0].Code, "%s %s?%s", method, path, query)
			}
		}
	}
	require.Equal(t, before, f.rowCounts(t))
	require.Equal(t, "not-found", f.getKey(t, key).problem(t).slug(), "the key was not used")
	require.Equal(t, http.StatusCreated, f.send(t, http.MethodPost, "/v1/orders?", orderBody(), header("Idempotency-Key", key)).status)
}

func TestRouter_methodNotAllowed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	before := f.rowCounts(t)
	for pattern, methods := range f.routes(t) {
		path := examplePath(pattern)
		var allowed []string
		for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			if slices.Contains(methods, m) || m == http.MethodHead && slices.Contains(methods, http.MethodGet) {
				allowed = append(allowed, m)
			}
		}
		for _, m := range []string{http.MethodHead, http.MethodPost, http.MethodDelete, http.MethodOptions, "PROPFIND", "get"} {
			if slices.Contains(allowed, m) {
				continue
			}
			got := f.send(t, m, path, "", header("X-Http-Method-Override", "GET"), header("Idempotency-Key", newKey()))
			require.Equal(t, http.StatusMethodNotAllowed, got.status, "%s %s", m, path)
			require.Equal(t, strings.Join(allowed, ", "), got.header.Get("Allow"), "%s %s", m, path)
		}
	}
	require.Equal(t, before, f.rowCounts(t))

	encoded := f.send(t, http.MethodDelete, "/v1/orders/a%2Fb", "")
	require.Equal(t, "GET, HEAD", encoded.header.Get("Allow"), "the escaped path decides")
}

func TestRouter_notFound(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, path := range []string{
		"/", "/v1", "/v1/", "/v1/orders/", "/v1/orders/x/refunds/", "/V1/orders", "//v1/orders", "/v1//orders", "/v1/../v1/orders",
		"/v1/webhooks/stripe/", "/v1/%6Frders", "/v1/orders%3Flimit=1", "/metrics", "/debug/pprof/", "/docs",
		"/%00", "/" + strings.Repeat("a", 8000),
	} {
		for _, m := range []string{http.MethodGet, http.MethodPost} {
			got := f.send(t, m, path, "")
			require.Equal(t, "not-found", got.problem(t).slug(), "%s %s", m, path)
			require.Empty(t, got.header["Allow"])
		}
	}
	require.Equal(t, "not-found", f.get(t, "/problems/%3Cscript%3E").problem(t).slug())
	require.Equal(t, "unauthorized", f.get(t, "/v1/nothing", header("Authorization")).problem(t).slug(), "first")
}

func TestRouter_spec(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(s *options) { s.specs = true })
	got := f.get(t, "/openapi.yaml", header("Authorization"))
	require.Equal(t, "application/yaml", got.header.Get("Content-Type"))
	require.True(t, bytes.Equal(ordersapi.Spec, got.body))
}

func TestRequestID_accepted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, sent := range []string{"abc-1.2_", strings.Repeat("x", 64)} {
		got := f.get(t, "/nothing", header("X-Request-Id", sent))
		require.Equal(t, sent, got.header.Get("X-Request-Id"))
		require.Equal(t, sent, got.problem(t).RequestID)
	}
	for _, sent := range []string{"", "abcdefg", strings.Repeat("x", 65), "abcdefgh ijkl", `abcdefgh","level":"ERROR`} {
		id := f.get(t, "/nothing", header("X-Request-Id", sent)).header.Get("X-Request-Id")
		require.Regexp(t, `^[A-Z2-7]{26}$`, id, sent)
	}
}

// All 401 of a request have the same bytes, so that they reveal nothing.
func TestAuthentication_invalidKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order, key := orderBody(), newKey()
	stored := f.create(t, key, order, header("Authorization", "bearer   "+f.apiKey))
	require.Equal(t, http.StatusCreated, stored.status)
	revoked := f.otherAccount(t)
	f.exec(t, "UPDATE api_keys SET revoked_at = now() WHERE prefix = $1", revoked[:8])
	before := f.rowCounts(t)
	requestID := header("X-Request-Id", "same-for-all")
	bodies := map[client.Outcome]string{}
	for name, values := range map[string][]string{
		"missing":        nil,
		"two headers":    {"Bearer " + f.apiKey, "Bearer " + f.apiKey},
		"another scheme": {"Basic " + f.apiKey},
		"no token":       {"Bearer  "},
		"an empty line":  {"", "Bearer " + f.apiKey},
		"malformed":      {"Bearer " + f.apiKey + "A"},
		"unknown":        {"Bearer ok_AAAAAAAAAAAAAAAAAAAAAAAAAA"},
		"revoked":        {"Bearer " + revoked},
	} {
		for _, got := range []response{
			f.create(t, newKey(), order, header("Authorization", values...), requestID),
			f.create(t, key, order, header("Authorization", values...), requestID),
			f.get(t, stored.header.Get("Location"), header("Authorization", values...), requestID),
		} {
			require.Equal(t, http.StatusUnauthorized, got.status, name)
			challenge := `Bearer realm="orders", error="invalid_token"`
			if slices.Contains([]string{"missing", "two headers", "another scheme", "no token", "an empty line"}, name) {
				challenge = `Bearer realm="orders"` // RFC 6750, 3.1
			}
			require.Equal(t, challenge, got.header.Get("WWW-Authenticate"), name)
			outcome := got.problem(t).Outcome
			if bodies[outcome] == "" {
				bodies[outcome] = string(got.body)
			}
			require.Equal(t, bodies[outcome], string(got.body), name)
		}
	}
	require.Len(t, bodies, 2)
	require.Equal(t, before, f.rowCounts(t))
}

// Below /v1, authentication comes before any other response, except for the webhook.
func TestAuthentication_everyRoute(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	before := f.rowCounts(t)
	for pattern, methods := range f.routes(t) {
		if !strings.HasPrefix(pattern, "/v1/") || pattern == "/v1/webhooks/stripe" {
			continue
		}
		for _, method := range append(methods, http.MethodPut, "PROPFIND", "get") {
			got := f.send(t, method, examplePath(pattern), "", header("Authorization"))
			require.Equal(t, http.StatusUnauthorized, got.status, "%s %s", method, pattern)
			require.Equal(t, `Bearer realm="orders"`, got.header.Get("WWW-Authenticate"))
			require.Empty(t, got.header.Get("Allow"))
		}
	}
	require.Equal(t, before, f.rowCounts(t))
}

// A process that stops ends its connections with the responses: Shutdown closes idle ones, and a
// proxy may have sent a request on such a connection.
func TestReadiness(t *testing.T) {
	t.Parallel()
	fault := errors.New("the schema is too old")
	ready := api.NewReadiness(func() error { return fault })
	f := newFixture(t, func(s *options) { s.ready = ready })
	anonymous := header("Authorization")
	require.JSONEq(t, `{"status":"ok"}`, string(f.get(t, "/healthz", anonymous).body), "the process is alive")
	require.Equal(t, fault, ready.Check())
	notReady := f.get(t, "/readyz", anonymous)
	require.Equal(t, "temporarily-unavailable", notReady.problem(t).slug())
	require.Equal(t, "2", notReady.header.Get("Retry-After"))
	require.NotContains(t, string(notReady.body), "schema")
	line := f.log.await(t, map[string]any{"request_id": notReady.header.Get("X-Request-Id")})
	require.Equal(t, []any{"not ready: the schema is too old", "WARN"}, []any{line["error"], line["level"]})

	fault = nil
	require.NoError(t, ready.Check())
	require.False(t, f.get(t, "/readyz").closes)
	require.False(t, f.create(t, "a-key-before-drain", orderBody()).closes)
	ready.Drain()
	require.EqualError(t, ready.Check(), "shutting down")
	require.Equal(t, http.StatusServiceUnavailable, f.get(t, "/readyz").status)
	for _, response := range []response{f.get(t, "/readyz"), f.get(t, "/healthz"), f.create(t, "a-key-after-drain", orderBody())} {
		require.True(t, response.closes)
	}
}
