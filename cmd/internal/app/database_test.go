package app_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/cmd/internal/app"
)

// A password that is not percent-encoded is understood as it was meant, or rejected. No part of it is
// ever taken for a host, a database or a user, which are logged and resolved.
func TestDatabase_passwordWithSpecialCharacters(t *testing.T) {
	t.Parallel()
	for first := range strings.SplitSeq("@#/?:%&=[],; '\"\\+!$^*()<>{}|~`x", "") {
		for second := range strings.SplitSeq("@/?#:x", "") {
			for _, password := range []string{
				"hun" + first + "t" + second + "er2", first + "hunter2" + second, "12" + first + "34" + second + "hunter2", "hunter2" + first + second,
			} {
				for _, format := range []string{
					"postgres://shop:%s@db.example.com:5432/orders?sslmode=disable",
					"postgresql://shop:%s@db.example.com,db2.example.com/orders?pool_max_conns=5",
					"postgres://db.example.com/orders?user=shop&password=%s",
					"host=db.example.com user=shop password=%s dbname=orders",
					"shop:%s@db.example.com/orders",
				} {
					value := fmt.Sprintf(format, password)
					config, err := app.Database{DatabaseURL: app.Secret(value)}.Parse()
					if err != nil {
						for _, part := range []string{"hun", "ter2", "er2", "34"} {
							require.NotContains(t, strings.ReplaceAll(err.Error(), "5432", ""), part, value)
						}
						continue
					}
					require.Equal(t, "db.example.com orders shop", config.ConnConfig.Host+" "+config.ConnConfig.Database+" "+config.ConnConfig.User, value)
				}
			}
		}
	}
}

// The error of a URL names what is wrong, and shows no secret.
func TestLoad_partsOfDatabaseURL(t *testing.T) {
	notPEM := filepath.Join(t.TempDir(), "not.pem")
	require.NoError(t, os.WriteFile(notPEM, []byte("canary"), 0o600))
	const url, notURL = "postgres://u:canary@h/orders", "is not a URL such as"
	for value, cause := range map[string]string{
		"postgres:/u:canary@h/orders": notURL,
		"canary":                      notURL,
		"host=h user=u password=canary dbname=orders": notURL,
		"postgres://:@/orders":                        notURL,
		"postgres://:canary@h/orders":                 notURL,
		"postgres://u:canary@/orders":                 notURL,
		"postgres://u:canary@:5432/orders":            notURL,
		"postgres://":                                 notURL,
		"postgres://u:ca@nary@h/orders":               notURL,
		"postgres://u:canary%@h/orders":               notURL,
		"postgres://u:1/canary@h/orders":              notURL,
		"postgres://u:1?canary@h/orders":              notURL,
		"postgres://u:canary@h:abc/orders":            notURL,
		"postgres://u:canary@[::1/orders":             notURL,
		"postgres://h/orders?user=u&password=canary":  notURL,
		url + "?sslpassword=canary":                   notURL,
		url + "?options=-csearch_path=x":              notURL,
		"postgres://u:canary@h:0/orders":              "invalid port",
		url + "?sslmode=requir":                       "sslmode is invalid",
		url + "?sslrootcert=" + notPEM:                "unable to add CA to cert pool",
		url + "?sslrootcert=/missing":                 "unable to read CA file: open /missing",
		url + "?connect_timeout=3s":                   "invalid connect_timeout",
		url + "?target_session_attrs=master":          "unknown target_session_attrs value: master",
		"postgres://u@h/orders?passfile=/missing":     "the file of passwords cannot be read: stat /missing",
		url + "?service=missing":                      "failed to read service",
		url + "?pool_max_conns=ten":                   "cannot parse pool_max_conns",
		url + "?default_query_exec_mode=cached":       "invalid default_query_exec_mode",
		url + "?default_query_exec_mode=exec":         "its default_query_exec_mode infers parameter types and cannot encode an order",
	} {
		setenv(t, "DATABASE_URL="+value)
		_, err := app.Load()
		require.ErrorContains(t, err, "\n  DATABASE_URL: "+map[bool]string{true: cause}[cause == notURL], value)
		require.ErrorContains(t, err, cause, value)
		require.NotContains(t, err.Error(), "canary", value)
	}
	for _, value := range []string{
		url, url + "?sslmode=disable&pool_max_conns=20&lock_timeout=", "postgres://u@/orders?host=/run/postgresql",
		"postgres://u:p%40ss@[::1]:5432,h2/orders", url + "?default_query_exec_mode=cache_describe",
	} {
		setenv(t, "DATABASE_URL="+value)
		_, err := app.Load()
		require.NoError(t, err, value)
	}
}

// Variables of libpq are rejected by their names, whether the driver reads them or not. No value is shown.
func TestLoad_variablesOfTheDriver(t *testing.T) {
	for _, name := range []string{"PGHOST", "PGPASSWORD", "PGOPTIONS", "PGSSLMODE", "PGSERVICE", "PGPORT", "PGHOSTADDR", "PGREQUIREPEER"} {
		setenv(t, database)
		t.Setenv(name, "canary\x01")
		_, err := app.Load("DATABASE_URL")
		require.EqualError(t, err, "wrong configuration:\n"+
			"  "+name+": is not read: write it as a parameter of DATABASE_URL, such as ?sslmode=verify-full, and unset it\n"+
			"orders help env lists every variable")
	}
	setenv(t, database)
	t.Setenv("PGDATA", "/var/lib/postgresql") // of the server
	t.Setenv("PG_BIN", "/usr/lib/postgresql/17/bin")
	_, err := app.Load("DATABASE_URL")
	require.NoError(t, err)
}

// Go ignores a wrong value of these, and calls go past the proxy, or each certificate is unknown. Former
// names are rejected, too.
func TestLoad_variablesOfTheNetwork(t *testing.T) {
	notPEM := filepath.Join(t.TempDir(), "not.pem")
	require.NoError(t, os.WriteFile(notPEM, []byte("nothing"), 0o600))
	for _, test := range []struct{ name, value, cause string }{
		{"HTTPS_PROXY", "http://u:canary%zz@proxy:3128", "is not the URL of a proxy"},
		{"https_proxy", "http//proxy 3128", "is not the URL of a proxy"},
		{"HTTP_PROXY", "http://u:12/canary@proxy", "is not the URL of a proxy"},
		{"SSL_CERT_FILE", "/missing.pem", "open /missing.pem"},
		{"SSL_CERT_FILE", notPEM, notPEM + " has no certificate in PEM format"},
		{"HTTPS_PROXY", "http://u:p%40ss@proxy:3128", ""},
		{"HTTPS_PROXY", "proxy:3128", ""},
		{"ALL_PROXY", "http://proxy:3128", "has no effect here; set HTTPS_PROXY"},
		{"SSL_CERT_DIR", "/missing", "open /missing: no such file"},
		{"EVENTS_SIGNING_KEY", "canary", "was removed: set EVENTS_URL and EVENTS_SECRET instead (docs/events.md)\n"},
		{"LOCK_TIMEOUT", "canary", "is called LEASE_DURATION now\n"},
		{"STRIPE_TIMEOUT", "canary", "is called STEP_TIMEOUT now\n"},
	} {
		for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "EVENTS_SIGNING_KEY", "LOCK_TIMEOUT", "STRIPE_TIMEOUT"} {
			t.Setenv(name, "")
		}
		setenv(t, database, testKey)
		t.Setenv(test.name, test.value)
		_, err := app.Load()
		if test.cause == "" {
			require.NoError(t, err, test)
			continue
		}
		require.ErrorContains(t, err, "\n  "+test.name+": "+test.cause)
		require.NotContains(t, err.Error(), "canary")
	}
}
