package app_test

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/cmd/internal/app"
	"example.com/orders-api/migrations/dbtest"
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
	const url, encode, notURL = "postgres://u:canary@h/orders", "has a special character that is not percent-encoded", "is neither a URL such as"
	for value, cause := range map[string]string{
		"postgres:/u:canary@h/orders":             notURL,
		"postgresq://u:canary@h/orders?sslmode=x": notURL,
		"canary":                                    notURL,
		"host=h password=canary canary":             notURL,
		"user=u password=canary dbname=orders":      "names no host",
		"postgres://:@/orders":                      "names no user",
		"postgres://:canary@h/orders":               "names no user",
		"postgres://u:canary@/orders":               "names no host",
		"postgres://u:canary@:5432/orders":          "names no host",
		"postgres:///orders":                        "names no host",
		"postgres://":                               "names no host",
		"postgres://u:ca@nary@h/orders":             encode,
		"postgres://u:canary%@h/orders":             encode,
		"postgres://u:1/canary@h/orders":            encode,
		"postgres://u:1?canary@h/orders":            encode,
		"postgres://u:canary@h:abc/orders":          "invalid port",
		"postgres://u:canary@h:0/orders":            "invalid port",
		"postgres://u:canary@h!/orders":             "a host that is neither",
		"postgres://u:canary@[::1/orders":           "an IPv6 address that is not between",
		url + "?sslmode":                            "a parameter that is not name=value",
		url + "?options=-csearch_path=x":            "a parameter that is not name=value",
		url + "?sslmode=requir":                     "sslmode is invalid",
		url + "?sslrootcert=" + notPEM:              "sslrootcert has no certificate in PEM format",
		url + "?sslrootcert=/missing":               "unable to read CA file: open /missing",
		url + "?sslcert=/missing&sslkey=/missing":   "unable to read sslkey: open /missing",
		url + "?sslcert=/missing":                   `both "sslcert" and "sslkey" are required`,
		url + "?sslnegotiation=x":                   "sslnegotiation is neither",
		url + "?connect_timeout=3s":                 "connect_timeout is not a number of seconds",
		url + "?target_session_attrs=master":        "unknown target_session_attrs value: master",
		url + "?channel_binding=x":                  "unknown channel_binding value: x",
		url + "?service=missing":                    "failed to read service",
		url + "?pool_max_conns=ten":                 "cannot parse pool_max_conns",
		url + "?pool_max_conns=0":                   "pool_max_conns too small",
		url + "?pool_max_conn_lifetime=1":           "cannot parse pool_max_conn_lifetime",
		url + "?default_query_exec_mode=cached":     "invalid default_query_exec_mode",
		url + "?statement_cache_capacity=x":         "cannot parse statement_cache_capacity",
		"postgres://u@h/orders?passfile=/missing":   "the file of passwords cannot be read: stat /missing",
		"host=h user=u dbname=orders passfile=/mis": "the file of passwords cannot be read: stat /mis",
	} {
		setenv(t, "DATABASE_URL="+value)
		err := app.Load(new(app.Database))
		require.Error(t, err, value)
		require.Regexp(t, "\n  DATABASE_URL: .*("+cause+")", err.Error(), value)
		require.NotContains(t, err.Error(), "canary", value)
	}
	for _, value := range []string{
		url, url + "?sslmode=disable&pool_max_conns=20&lock_timeout=", "postgres://u@/orders?host=/run/postgresql",
		"postgres://u:p%40ss@[::1]:5432,h2/orders", "host=h user=u password='with space' dbname=orders",
	} {
		setenv(t, "DATABASE_URL="+value)
		require.NoError(t, app.Load(new(app.Database)), value)
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

// Each variable that the driver reads is named in the error that a wrong value causes, at the start or by
// the server, and no password is shown.
func TestLoad_variablesOfTheDriver(t *testing.T) {
	config := dbtest.New(t).Config().ConnConfig
	parameters := map[string]string{
		"PGHOST": "host=" + config.Host, "PGPORT": "port=" + strconv.Itoa(int(config.Port)), "PGUSER": "user=" + config.User,
		"PGDATABASE": "dbname=" + config.Database, "PGPASSWORD": "password=" + config.Password,
	}
	// A wrong value of these is a right one, or has no effect.
	harmless := []string{"PGAPPNAME", "PGSERVICEFILE", "PGSSLSNI", "PGSSLPASSWORD"}
	for _, name := range driverVariables(t) {
		t.Run(name, func(t *testing.T) {
			without := maps.Clone(parameters)
			delete(without, name)
			if name == "PGPASSFILE" {
				delete(without, "PGPASSWORD")
			}
			url := "DATABASE_URL=" + strings.Join(slices.Collect(maps.Values(without)), " ")
			for _, value := range []string{"'canary'", `"canary"`, "canary\x01", "can\nary", "canary~"} {
				setenv(t, url)
				t.Setenv(name, value)
				var d app.Database
				err := app.Load(&d)
				if err == nil {
					_, err = app.Pool(t.Context(), d, slog.New(slog.DiscardHandler))
				}
				if slices.Contains(harmless, name) && err == nil || name == "PGPASSWORD" && err == nil { // the server trusts
					require.Equal(t, "canary~", value)
					continue
				}
				require.ErrorContains(t, err, name)
				if name == "PGPASSWORD" || name == "PGSSLPASSWORD" {
					require.NotContains(t, err.Error(), "canary")
				}
			}
		})
	}
	setenv(t, database)
	t.Setenv("PGSSLMODE", "canary")
	t.Setenv("PGCONNECT_TIMEOUT", "3s")
	t.Setenv("PGHOSTADDR", "192.0.2.1")
	require.EqualError(t, app.Load(new(app.Database)), "wrong configuration:\n"+
		"  PGHOSTADDR: is not read by the driver of this program, so it has no effect; unset it\n"+
		"  PGCONNECT_TIMEOUT: connect_timeout is not a number of seconds (strconv.ParseInt: parsing \"3s\": invalid syntax)\n"+
		"  PGSSLMODE: failed to configure TLS (sslmode is invalid)\n"+
		"orders help env lists every variable")
}

// The server's message about an unknown parameter would show what follows a space in a password.
func TestPool_parameterOfAPassword(t *testing.T) {
	pool := dbtest.New(t).Config().ConnConfig
	d := app.Database{DatabaseURL: app.Secret(fmt.Sprintf("host=%s port=%d user=%s dbname=%s sslmode=disable password=%s canary=ter2",
		pool.Host, pool.Port, pool.User, pool.Database, pool.Password))}
	_, err := app.Pool(t.Context(), d, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "connect to the database (DATABASE_URL): the server rejects a parameter")
	require.NotContains(t, err.Error(), "canary")
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
		{"NO_PROXY", "localhost,10.0.0.0/33", `"10.0.0.0/33" is not`},
		{"no_proxy", "http://internal", `"http://internal" is not`},
		{"ALL_PROXY", "http://proxy:3128", "has no effect here; set HTTPS_PROXY"},
		{"SSL_CERT_FILE", "/missing.pem", "open /missing.pem"},
		{"SSL_CERT_FILE", notPEM, notPEM + " has no certificate in PEM format"},
		{"SSL_CERT_DIR", "/missing:/missing-too", "has no folder that can be read"},
		{"HTTPS_PROXY", "http://u:p%40ss@proxy:3128", ""},
		{"HTTPS_PROXY", "proxy:3128", ""},
		{"HTTPS_PROXY", "socks5://127.0.0.1:1080", ""},
		{"NO_PROXY", "localhost, 127.0.0.1,.svc, *.internal,10.0.0.0/8,[::1]:80,*,", ""},
		{"SSL_CERT_DIR", "/missing:" + folder, ""},
	} {
		for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"} {
			t.Setenv(name, "")
		}
		setenv(t, database, testKey)
		t.Setenv(test.name, test.value)
		for _, group := range []any{new(app.Stripe), new(app.Mail)} {
			err := app.Load(group)
			if test.cause == "" {
				require.NoError(t, err, test)
				continue
			}
			require.ErrorContains(t, err, "\n  "+test.name+": "+test.cause)
			require.NotContains(t, err.Error(), "canary")
		}
	}
}
