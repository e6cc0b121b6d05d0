package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
)

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
