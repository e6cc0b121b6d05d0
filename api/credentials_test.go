package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/api"
	"example.com/orders-api/idempotency/idempotencytest"
)

func TestOnlyAValidKeyOpens(t *testing.T) {
	t.Parallel()
	a := start(t)
	order, key := body(), newKey()
	stored := a.create(t, key, order)
	require.Equal(t, http.StatusCreated, stored.status)
	revoked := a.otherAccount(t)
	a.exec(t, "UPDATE api_keys SET revoked_at = now() WHERE prefix = $1", revoked[:8])

	bearer := "Bearer " + a.apiKey
	tests := map[string][]string{
		"missing":                   nil,
		"empty":                     {""},
		"a scheme only":             {"Bearer"},
		"a key only":                {a.apiKey},
		"Basic":                     {"Basic " + a.apiKey},
		"another scheme":            {"Token " + a.apiKey},
		"two blanks":                {"Bearer  " + a.apiKey},
		"a tab":                     {"Bearer\t" + a.apiKey},
		"two headers":               {bearer, bearer},
		"two headers, one empty":    {"", bearer},
		"two in one line":           {bearer + ", " + bearer},
		"a parameter behind":        {bearer + "; v=1"},
		"in quotes":                 {`Bearer "` + a.apiKey + `"`},
		"unknown":                   {"Bearer ok_AAAAAAAAAAAAAAAAAAAAAAAAAA"},
		"one character changed":     {bearer[:len(bearer)-1] + "_"},
		"one character less":        {bearer[:len(bearer)-1]},
		"one character more":        {bearer + "A"},
		"in lower case":             {"Bearer " + strings.ToLower(a.apiKey)},
		"its prefix":                {"Bearer " + a.apiKey[:8]},
		"the prefix of all keys":    {"Bearer ok_"},
		"a wildcard":                {"Bearer ok_%"},
		"SQL":                       {"Bearer ok_' OR 1=1 --"},
		"a byte that is not UTF-8":  {"Bearer ok_\xff"},
		"ten kilobytes":             {"Bearer ok_" + strings.Repeat("A", 10<<10)},
		"revoked":                   {"Bearer " + revoked},
		"the account's id":          {"Bearer " + a.account.String()},
		"a key of the provider":     {"Bearer sk_test_0123456789"},
		"nobody's, and a long line": {"Bearer " + strings.Repeat("x", 300)},
	}
	before := a.rows(t)
	requestID := header("X-Request-Id", "same-for-all")
	var bytes string
	for name, values := range tests {
		for _, got := range []answer{
			a.create(t, newKey(), order, header("Authorization", values...), requestID),
			a.create(t, key, order, header("Authorization", values...), requestID), // not even what is stored
			a.get(t, stored.header.Get("Location"), header("Authorization", values...), requestID),
			a.get(t, "/v1/orders", header("Authorization", values...), requestID),
			a.get(t, "/v1/nothing", header("Authorization", values...), requestID),
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
	require.Equal(t, before, a.rows(t))
}

// A key that was good a moment ago is believed until the database is asked, which
// is before anything else is done or told.
func TestARevokedKeyOpensNothing(t *testing.T) {
	t.Parallel()
	a := start(t)
	order, key := body(), newKey()
	require.Equal(t, http.StatusCreated, a.create(t, key, order).status)
	for name, send := range map[string]func() answer{
		"a new key":              func() answer { return a.create(t, newKey(), order) },
		"a stored answer":        func() answer { return a.create(t, key, order) },
		"one that ran async":     func() answer { return a.create(t, newKey(), order, header("Prefer", "respond-async")) },
		"another body":           func() answer { return a.create(t, key, body(func(m map[string]any) { m["currency"] = "eur" })) },
		"an invalid order":       func() answer { return a.create(t, newKey(), "{}") },
		"malformed JSON":         func() answer { return a.create(t, newKey(), "[") },
		"no key":                 func() answer { return a.create(t, "", order, header("Idempotency-Key")) },
		"a refund":               func() answer { return a.giveBack(t, "/v1/orders/"+uuid.NewString(), newKey(), "{}") },
		"a refund of nothing":    func() answer { return a.giveBack(t, "/v1/orders/none", newKey(), "{}") },
		"a body that is too big": func() answer { return a.create(t, newKey(), strings.Repeat(" ", 65<<10)) },
	} {
		a.exec(t, "UPDATE api_keys SET revoked_at = NULL")
		require.Equal(t, http.StatusCreated, a.create(t, key, order).status, name) // so that it is remembered
		a.exec(t, "UPDATE api_keys SET revoked_at = now()")
		before := a.rows(t)
		got := send()
		require.Equal(t, http.StatusUnauthorized, got.status, name)
		require.Empty(t, got.header.Get("Idempotency-Key"), name)
		require.Equal(t, before, a.rows(t), name)
	}
}

func TestACredentialElsewhereDoesNotCount(t *testing.T) {
	t.Parallel()
	a := start(t)
	for name, e := range map[string]edit{
		"in the query": func(r *http.Request) {
			r.URL.RawQuery = "api_key=" + a.apiKey + "&access_token=" + a.apiKey + "&Authorization=Bearer+" + a.apiKey
		},
		"in another header": header("X-Api-Key", a.apiKey),
		"for a proxy":       header("Proxy-Authorization", "Bearer "+a.apiKey),
		"in a cookie":       header("Cookie", "api_key="+a.apiKey),
		"in the address":    func(r *http.Request) { r.URL.User = nil; r.SetBasicAuth(a.apiKey, a.apiKey) },
	} {
		got := a.get(t, "/v1/orders", header("Authorization"), e)
		require.Equal(t, http.StatusUnauthorized, got.status, name)
	}
}

func TestTheSchemeHasNoCase(t *testing.T) {
	t.Parallel()
	a := start(t)
	for _, scheme := range []string{"bearer", "BEARER"} {
		require.Equal(t, http.StatusOK, a.get(t, "/v1/orders", header("Authorization", scheme+" "+a.apiKey)).status)
	}
}

func TestAKeyIsStoredAsItsHashOnly(t *testing.T) {
	t.Parallel()
	a := start(t)
	var row string
	require.NoError(t, a.pool.QueryRow(t.Context(),
		"SELECT api_keys::text || accounts::text FROM api_keys JOIN accounts ON accounts.id = account_id").Scan(&row))
	require.NotContains(t, row, a.apiKey)
	require.NotContains(t, row, a.apiKey[9:])
	require.Regexp(t, `^ok_[A-Z2-7]{26}$`, a.apiKey)

	known, err := api.KnowsKey(t.Context(), a.pool, a.apiKey)
	require.NoError(t, err)
	require.True(t, known)
	for _, key := range []string{"", "ok_", a.apiKey + "A"} {
		known, err := api.KnowsKey(t.Context(), a.pool, key)
		require.NoError(t, err)
		require.False(t, known, key)
	}
}

// Each request has its credentials looked up, by an index and without planning.
func TestCredentialsAreFoundByAnIndex(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	_, key, err := api.CreateAccount(t.Context(), pool, "Ada")
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), `
INSERT INTO api_keys (id, account_id, key_hash, prefix)
SELECT gen_random_uuid(), id, sha256(uuid_send(gen_random_uuid())), 'ok_many'
  FROM accounts,
       generate_series(1, 1000)`)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "ANALYZE api_keys")
	require.NoError(t, err)
	pool.Reset() // these are not among the statements
	for range 10 {
		known, err := api.KnowsKey(t.Context(), pool, key)
		require.NoError(t, err)
		require.True(t, known)
	}
	var found int
	for _, plan := range idempotencytest.Plans(t, pool) {
		if strings.Contains(plan.Statement, "key_hash") {
			require.Contains(t, plan.Text, "Index Scan using api_keys_key_hash_unique")
			require.NotZero(t, plan.Generic)
			found++
		}
	}
	require.Equal(t, 1, found)
}

func TestAccountsHaveNames(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t)
	for name, text := range map[string]string{
		"empty":            "",
		"blanks":           " \t ",
		"too long":         strings.Repeat("é", 201),
		"NUL":              "a\x00b",
		"not in UTF-8":     "a\xffb",
		"not UTF-8 at all": "\xff",
	} {
		id, key, err := api.CreateAccount(t.Context(), pool, text)
		require.Error(t, err, name)
		require.Equal(t, uuid.Nil, id, name)
		require.Empty(t, key, name)
	}
	for _, text := range []string{"A", " Ada & Sons ", strings.Repeat("é", 200)} {
		_, _, err := api.CreateAccount(t.Context(), pool, text)
		require.NoError(t, err)
	}
	var names []string
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT array_agg(name ORDER BY created_at) FROM accounts").Scan(&names))
	require.Equal(t, []string{"A", "Ada & Sons", strings.Repeat("é", 200)}, names)
}
