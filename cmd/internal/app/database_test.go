package app_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/cmd/internal/app"
)

// A password that is not percent-encoded is understood as it was meant, or rejected. No part of it is
// ever taken for a host, a database or a user, which are logged and resolved.
func TestDatabase_passwordWithSpecialCharacters(t *testing.T) {
	t.Parallel()
	special := strings.Split("@#/?:%&=[],; '\"\\+!$^*()<>{}|~`x", "")
	for _, first := range special {
		for second := range strings.SplitSeq("@/?#:x", "") {
			for _, password := range []string{
				"hun" + first + "t" + second + "er2", first + "hunter2" + second, "12" + first + "34" + second + "hunter2", "hunter2" + first + second,
			} {
				for _, format := range []string{
					"postgres://shop:%s@db.example.com:5432/orders?sslmode=disable",
					"postgresql://shop:%s@db.example.com,db2.example.com/orders?pool_max_conns=5",
					"postgres://db.example.com/orders?user=shop&password=%s",
					"postgres://db.example.com:5432?dbname=orders&user=shop&password=%s",
					"host=db.example.com user=shop password=%s dbname=orders",
					"jdbc:postgresql://db.example.com/orders?user=shop&password=%s",
					"postgresq://shop:%s@db.example.com/orders?sslmode=disable",
					"shop:%s@db.example.com/orders",
				} {
					value := fmt.Sprintf(format, password)
					config, err := app.Database{DatabaseURL: app.Secret(value)}.Parse()
					if err != nil {
						for _, part := range []string{"hun", "ter2", "er2", "34"} {
							require.NotContains(t, err.Error(), part, value)
						}
						continue
					}
					require.Equal(t, "db.example.com", config.ConnConfig.Host, value)
					require.Contains(t, []string{"orders", ""}, config.ConnConfig.Database, "%s: \\ may continue the password", value)
					require.Equal(t, "shop", config.ConnConfig.User, value)
				}
			}
		}
	}
}

func TestLoad_partsOfDatabaseURL(t *testing.T) {
	folder := t.TempDir()
	notPEM := filepath.Join(folder, "not.pem")
	require.NoError(t, os.WriteFile(notPEM, []byte("canary"), 0o600))
	const url, encode, notURL = "postgres://u:canary@h/orders", "has a parameter that is not name=value, or a special character", "is not a URL such as"
	const host, inParameters = "has a host that is neither a name", "has a password in its parameters"
	for value, cause := range map[string]string{
		"postgres:/u:canary@h/orders":             notURL,
		"postgresq://u:canary@h/orders?sslmode=x": notURL,
		"canary": notURL,
		"host=h user=u password=canary dbname=orders": notURL,
		"postgres://:@/orders":                        "names no user",
		"postgres://:canary@h/orders":                 "names no user",
		"postgres://u:canary@/orders":                 "names no host",
		"postgres://u:canary@:5432/orders":            "names no host",
		"postgres:///orders":                          "names no host",
		"postgres://":                                 "names no host",
		"postgres://u:ca@nary@h/orders":               encode,
		"postgres://u:canary%@h/orders":               encode,
		"postgres://u:1/canary@h/orders":              encode,
		"postgres://u:1?canary@h/orders":              encode,
		"postgres://u:canary@h:abc/orders":            host,
		"postgres://u:canary@h:0/orders":              "invalid port",
		"postgres://u:canary@h!/orders":               host,
		"postgres://u:canary@[::1/orders":             host,
		url + "?sslmode":                              encode,
		url + "?options=-csearch_path=x":              encode,
		url + "?sslmode=requir":                       "sslmode is invalid",
		url + "?sslrootcert=" + notPEM:                "sslrootcert has no certificate in PEM format",
		url + "?sslrootcert=/missing":                 "unable to read CA file: open /missing",
		url + "?sslcert=/missing&sslkey=/missing":     "unable to read sslkey: open /missing",
		url + "?sslcert=/missing":                     `both "sslcert" and "sslkey" are required`,
		url + "?connect_timeout=3s":                   "connect_timeout is not a number of seconds",
		url + "?target_session_attrs=master":          "unknown target_session_attrs value: master",
		url + "?channel_binding=x":                    "unknown channel_binding value: x",
		url + "?service=missing":                      "failed to read service",
		url + "?pool_max_conns=ten":                   "cannot parse pool_max_conns",
		url + "?pool_max_conns=0":                     "pool_max_conns too small",
		url + "?pool_max_conn_lifetime=1":             "cannot parse pool_max_conn_lifetime",
		url + "?default_query_exec_mode=cached":       "invalid default_query_exec_mode",
		url + "?statement_cache_capacity=x":           "cannot parse statement_cache_capacity",
		"postgres://u@h/orders?passfile=/missing":     "the file of passwords cannot be read: stat /missing",
		"postgres://h/orders?user=u&password=canary":  inParameters,
		url + "?sslpassword=canary":                   inParameters,
	} {
		setenv(t, "DATABASE_URL="+value)
		_, err := app.Load()
		require.Error(t, err, value)
		require.Regexp(t, "\n  DATABASE_URL: .*("+cause+")", err.Error(), value)
		require.NotContains(t, err.Error(), "canary", value)
	}
	for _, value := range []string{
		url, url + "?sslmode=disable&pool_max_conns=20&lock_timeout=", "postgres://u@/orders?host=/run/postgresql",
		"postgres://u:p%40ss@[::1]:5432,h2/orders",
	} {
		setenv(t, "DATABASE_URL="+value)
		_, err := app.Load()
		require.NoError(t, err, value)
	}
}

// driverVariables are those that the driver's source names.
func driverVariables(t *testing.T) (names []string) {
	t.Helper()
	folder, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "github.com/jackc/pgx/v5/pgconn").Output()
	require.NoError(t, err)
	source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(folder)), "config.go"))
	require.NoError(t, err)
	for _, match := range regexp.MustCompile(`(?m)^\s+"(PG[A-Z_]+)":`).FindAllStringSubmatch(string(source), -1) {
		names = append(names, match[1])
	}
	require.Contains(t, names, "PGSSLMODE")
	return names
}

// Each variable that the driver reads is rejected by its name, and so are those of libpq that it ignores. No value is shown.
func TestLoad_variablesOfTheDriver(t *testing.T) {
	for _, name := range append(driverVariables(t), "PGHOSTADDR", "PGREQUIREPEER", "PGREQUIRESSL", "PGSSLCRL", "PGSSLCRLDIR", "PGSSLMINPROTOCOLVERSION", "PGSSLMAXPROTOCOLVERSION") {
		t.Run(name, func(t *testing.T) {
			for _, value := range []string{"'canary'", "canary\x01", "can\nary", "canary~"} {
				setenv(t, database)
				t.Setenv(name, value)
				_, err := app.Load("DATABASE_URL")
				require.EqualError(t, err, "wrong configuration:\n"+
					"  "+name+": is not read: write it as a parameter of DATABASE_URL, such as ?sslmode=verify-full, and unset it\n"+
					"orders help env lists every variable")
			}
		})
	}
	setenv(t, database)
	t.Setenv("PGDATA", "/var/lib/postgresql") // of the server
	t.Setenv("PG_BIN", "/usr/lib/postgresql/17/bin")
	_, err := app.Load("DATABASE_URL")
	require.NoError(t, err)
}

// Go ignores a wrong value of these, and calls go past the proxy, or each certificate is unknown.
func TestLoad_variablesOfTheNetwork(t *testing.T) {
	folder := t.TempDir()
	notPEM := filepath.Join(folder, "not.pem")
	require.NoError(t, os.WriteFile(notPEM, []byte("nothing"), 0o600))
	for _, test := range []struct{ name, value, cause string }{
		{"HTTPS_PROXY", "http://u:canary%zz@proxy:3128", "is not the URL of a proxy"},
		{"HTTPS_PROXY", "http://proxy:port", "is not the URL of a proxy"},
		{"https_proxy", "http//proxy 3128", "is not the URL of a proxy"},
		{"HTTPS_PROXY", "ftp://u:canary@proxy", "is not the URL of a proxy"},
		{"HTTP_PROXY", "http://u:12/canary@proxy", "is not the URL of a proxy"},
		{"HTTPS_PROXY", "'http://proxy'", "is not the URL of a proxy"},
		{"ALL_PROXY", "http://proxy:3128", "has no effect here; set HTTPS_PROXY"},
		{"SSL_CERT_FILE", "/missing.pem", "open /missing.pem"},
		{"SSL_CERT_FILE", notPEM, notPEM + " has no certificate in PEM format"},
		{"SSL_CERT_DIR", "/missing:" + folder, "open /missing: no such file"},
		{"HTTPS_PROXY", "http://u:p%40ss@proxy:3128", ""},
		{"HTTPS_PROXY", "proxy:3128", ""},
		{"HTTPS_PROXY", "socks5://127.0.0.1:1080", ""},
		{"SSL_CERT_DIR", folder, ""},
	} {
		for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"} {
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
