package api_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

func TestOnlyAValidKeyOpens(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order, key := orderBody(), newKey()
	stored := f.create(t, key, order)
	require.Equal(t, http.StatusCreated, stored.status)
	revoked := f.otherAccount(t)
	f.exec(t, "UPDATE api_keys SET revoked_at = now() WHERE prefix = $1", revoked[:8])

	bearer := "Bearer " + f.apiKey
	tests := map[string][]string{
		"missing":                   nil,
		"empty":                     {""},
		"a scheme only":             {"Bearer"},
		"a key only":                {f.apiKey},
		"Basic":                     {"Basic " + f.apiKey},
		"another scheme":            {"Token " + f.apiKey},
		"two blanks":                {"Bearer  " + f.apiKey},
		"a tab":                     {"Bearer\t" + f.apiKey},
		"two headers":               {bearer, bearer},
		"two headers, one empty":    {"", bearer},
		"two in one line":           {bearer + ", " + bearer},
		"a parameter behind":        {bearer + "; v=1"},
		"in quotes":                 {`Bearer "` + f.apiKey + `"`},
		"unknown":                   {"Bearer ok_AAAAAAAAAAAAAAAAAAAAAAAAAA"},
		"one character changed":     {bearer[:len(bearer)-1] + "_"},
		"one character less":        {bearer[:len(bearer)-1]},
		"one character more":        {bearer + "A"},
		"in lower case":             {"Bearer " + strings.ToLower(f.apiKey)},
		"its prefix":                {"Bearer " + f.apiKey[:8]},
		"the prefix of all keys":    {"Bearer ok_"},
		"a wildcard":                {"Bearer ok_%"},
		"SQL":                       {"Bearer ok_' OR 1=1 --"},
		"a byte that is not UTF-8":  {"Bearer ok_\xff"},
		"ten kilobytes":             {"Bearer ok_" + strings.Repeat("A", 10<<10)},
		"revoked":                   {"Bearer " + revoked},
		"the account's id":          {"Bearer " + f.account.String()},
		"a key of the provider":     {"Bearer sk_test_0123456789"},
		"nobody's, and a long line": {"Bearer " + strings.Repeat("x", 300)},
	}
	before := f.rowCounts(t)
	requestID := header("X-Request-Id", "same-for-all")
	var bytes string
	for name, values := range tests {
		for _, got := range []response{
			f.create(t, newKey(), order, header("Authorization", values...), requestID),
			f.create(t, key, order, header("Authorization", values...), requestID), // not even what is stored
			f.get(t, stored.header.Get("Location"), header("Authorization", values...), requestID),
			f.get(t, "/v1/orders", header("Authorization", values...), requestID),
			f.get(t, "/v1/nothing", header("Authorization", values...), requestID),
		} {
			require.Equal(t, http.StatusUnauthorized, got.status, name)
			require.Equal(t, `Bearer realm="orders"`, got.header.Get("WWW-Authenticate"), name)
			require.Empty(t, got.header.Get("Idempotency-Key"), name)
			if bytes == "" {
				bytes = string(got.body)
			}
			require.Equal(t, bytes, string(got.body), "%s: the answer tells no difference", name)
		}
	}
	require.Equal(t, before, f.rowCounts(t))
}

// Five seconds after it was revoked, a key gets 401 for every request, before the
// request is looked at in any other way.
func TestARevokedKeyOpensNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order, key := orderBody(), newKey()
	require.Equal(t, http.StatusCreated, f.create(t, key, order).status)
	for name, send := range map[string]func() response{
		"a new key":              func() response { return f.create(t, newKey(), order) },
		"a stored answer":        func() response { return f.create(t, key, order) },
		"one that ran async":     func() response { return f.create(t, newKey(), order, header("Prefer", "respond-async")) },
		"another body":           func() response { return f.create(t, key, orderBody(func(m map[string]any) { m["currency"] = "eur" })) },
		"an invalid order":       func() response { return f.create(t, newKey(), "{}") },
		"malformed JSON":         func() response { return f.create(t, newKey(), "[") },
		"no key":                 func() response { return f.create(t, "", order, header("Idempotency-Key")) },
		"a refund":               func() response { return f.createRefund(t, "/v1/orders/"+uuid.NewString(), newKey(), "{}") },
		"a refund of nothing":    func() response { return f.createRefund(t, "/v1/orders/none", newKey(), "{}") },
		"a body that is too big": func() response { return f.create(t, newKey(), strings.Repeat(" ", 65<<10)) },
	} {
		f.exec(t, "UPDATE api_keys SET revoked_at = NULL")
		require.Equal(t, http.StatusCreated, f.create(t, key, order).status, name) // which caches the key
		f.exec(t, "UPDATE api_keys SET revoked_at = now()")
		f.expireAPIKeys()
		before := f.rowCounts(t)
		got := send()
		require.Equal(t, http.StatusUnauthorized, got.status, name)
		require.Empty(t, got.header.Get("Idempotency-Key"), name)
		require.Equal(t, before, f.rowCounts(t), name)
	}
}

func TestACredentialElsewhereDoesNotCount(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, e := range map[string]requestEdit{
		"in the query": func(r *http.Request) {
			r.URL.RawQuery = "api_key=" + f.apiKey + "&access_token=" + f.apiKey + "&Authorization=Bearer+" + f.apiKey
		},
		"in another header": header("X-Api-Key", f.apiKey),
		"for a proxy":       header("Proxy-Authorization", "Bearer "+f.apiKey),
		"in a cookie":       header("Cookie", "api_key="+f.apiKey),
		"in the address":    func(r *http.Request) { r.URL.User = nil; r.SetBasicAuth(f.apiKey, f.apiKey) },
	} {
		got := f.get(t, "/v1/orders", header("Authorization"), e)
		require.Equal(t, http.StatusUnauthorized, got.status, name)
	}
}

func TestTheSchemeHasNoCase(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, scheme := range []string{"bearer", "BEARER"} {
		require.Equal(t, http.StatusOK, f.get(t, "/v1/orders", header("Authorization", scheme+" "+f.apiKey)).status)
	}
}

// Every route below /v1 but the webhook requires an API key, and answers 401 before
// it looks at anything else.
func TestAuthentication_everyRoute(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	before := f.rowCounts(t)
	for pattern, methods := range f.routes(t) {
		if !strings.HasPrefix(pattern, "/v1/") || pattern == "/v1/webhooks/stripe" {
			continue
		}
		for _, method := range append(methods, http.MethodPut) {
			got := f.send(t, method, routePaths()[pattern], "", header("Authorization"))
			require.Equal(t, http.StatusUnauthorized, got.status, "%s %s", method, pattern)
			require.Equal(t, `Bearer realm="orders"`, got.header.Get("WWW-Authenticate"))
			require.Empty(t, got.header.Get("Allow"))
		}
	}
	require.Equal(t, before, f.rowCounts(t))
}

// heldLookups is a pgx tracer that blocks the lookup of every API key but one.
type blockedLookups struct {
	valid    []byte // SHA-256 of the key whose lookups pass
	held     chan struct{}
	released chan struct{}
}

func (h *blockedLookups) TraceQueryStart(ctx context.Context, _ *pgx.Conn, query pgx.TraceQueryStartData) context.Context {
	if strings.Contains(query.SQL, "key_hash = $1") && !bytes.Equal(query.Args[0].([]byte), h.valid) {
		h.held <- struct{}{}
		select {
		case <-h.released:
		case <-ctx.Done():
		}
	}
	return ctx
}

func (h *blockedLookups) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Requests with unknown API keys neither take a connection of the orders nor cause
// the rejection of a request with a valid key (R25), however slow their lookups are.
func TestAuthentication_unknownKeysRejectNoValidOne(t *testing.T) {
	t.Parallel()
	const unknown, valid = 40, 20
	lookups := &blockedLookups{held: make(chan struct{}, unknown), released: make(chan struct{})}
	f := newFixture(t, poolSize(1), limiterBounds(10, 10), func(s *options) {
		s.pool = append(s.pool, func(config *pgxpool.Config) { config.ConnConfig.Tracer = lookups })
	})
	hash := sha256.Sum256([]byte(f.apiKey))
	lookups.valid = hash[:]
	require.Equal(t, http.StatusCreated, f.create(t, newKey(), orderBody()).status)

	var rejected []<-chan asyncResponse
	for range unknown {
		rejected = append(rejected, f.sendAsync(f.request(t, http.MethodGet, "/v1/orders", "", header("Authorization", "Bearer ok_"+rand.Text()))))
	}
	<-lookups.held
	f.expireAPIKeys() // so that the valid key is looked up, too
	statuses := map[int]int{}
	for range valid {
		statuses[f.create(t, newKey(), orderBody()).status]++
		statuses[f.get(t, "/v1/orders").status]++
	}
	close(lookups.released)
	for _, request := range rejected {
		got := <-request
		require.NoError(t, got.err)
		// A lookup that took longer than its timeout ends with 503.
		require.Contains(t, []int{http.StatusUnauthorized, http.StatusServiceUnavailable}, got.status)
	}
	require.Equal(t, map[int]int{http.StatusCreated: valid, http.StatusOK: valid}, statuses)
}
