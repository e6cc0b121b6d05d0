package app_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kelseyhightower/envconfig"
	"github.com/stretchr/testify/require"

	ordersapi "example.com/orders-api"
	"example.com/orders-api/cmd/internal/app"
	"example.com/orders-api/migrations/dbtest"
)

var names = slices.Sorted(maps.Keys(app.Defaults()))

func setenv(t *testing.T, settings ...string) {
	t.Helper()
	for _, setting := range os.Environ() { // libpq's, too
		if name, _, _ := strings.Cut(setting, "="); slices.Contains(names, name) || strings.HasPrefix(name, "PG") && name != "PG_BIN" {
			t.Setenv(name, "") // restores the value after the test
			require.NoError(t, os.Unsetenv(name))
		}
	}
	for _, setting := range settings {
		name, value, _ := strings.Cut(setting, "=")
		require.Contains(t, names, name)
		t.Setenv(name, value)
	}
}

const (
	database = "DATABASE_URL=postgres://u:p@127.0.0.1:5432/orders"
	testKey  = "STRIPE_SECRET_KEY=sk_test_1"

	eventsURL    = "https://shop.example/canary"
	eventsSecret = "whsec_dGhpcyBpcyB0aGUgc2VjcmV0IG9mIGEgdGVzdA=="

	noEventsURL    = "EVENTS_URL: is not an http or https URL without a user and a fragment, such as https://shop.example.com/events (its value is not shown)"
	noEventsSecret = "EVENTS_SECRET: is not whsec_ and the base64 of 24 to 64 bytes, or two of these with a comma between (its value is not shown); " +
		`generate one with echo "whsec_$(openssl rand -base64 32)"`
	noKey = "STRIPE_SECRET_KEY: is not a secret key, which begins with sk_test_, rk_test_, sk_live_ or rk_live_ and has only letters, digits and _ (its value is not shown)"
)

func TestLoad(t *testing.T) {
	for name, test := range map[string]struct {
		environment []string
		problems    []string // in this order
	}{
		"empty variables count as not set": {
			environment: []string{"DATABASE_URL=", "STRIPE_SECRET_KEY=", "LISTEN_ADDR=", "STEP_TIMEOUT=", "LOG_LEVEL=", "SMTP_URL=", "RECEIPTS_FROM="},
			problems:    []string{"DATABASE_URL: not set", "STRIPE_SECRET_KEY: not set"},
		},
		"every variable is invalid": {
			environment: []string{
				"DATABASE_URL=postgres://u:canary@host:99999/x", "LISTEN_ADDR=8080", "ADMIN_ADDR=localhost", "STRIPE_SECRET_KEY=whsec_canary",
				"STRIPE_API_BASE=localhost:12111", "STEP_TIMEOUT=20", "STRIPE_WEBHOOK_SECRET=sk_test_canary", "SMTP_URL=http://u:canary@host", "SMTP_HELLO=pod", "RECEIPTS_FROM=nobody",
				"EVENTS_URL=shop.example/canary", "EVENTS_SECRET=whsec_canary", "LEASE_DURATION=-90s", "COMPLETER_GRACE=0s", "CHARGE_WINDOW=1d", "KEY_RETENTION=3 days",
				"LOG_LEVEL=loud", "LOG_FORMAT=xml",
			},
			problems: []string{
				`STEP_TIMEOUT: time: missing unit in duration "20"`,
				`CHARGE_WINDOW: time: unknown unit "d" in duration "1d"`,
				`KEY_RETENTION: time: unknown unit " days" in duration "3 days"`,
				`LOG_LEVEL: slog: level string "loud": unknown name`,
				`LISTEN_ADDR: "8080" is not a host:port such as 127.0.0.1:8080 or [::1]:8080`,
				`ADMIN_ADDR: "localhost" is not a host:port such as 127.0.0.1:8080 or [::1]:8080`,
				`LOG_FORMAT: "xml" is neither text nor json`,
				noKey,
				"STRIPE_API_BASE: is not an http or https URL without a query; leave it empty for Stripe itself",
				"STRIPE_WEBHOOK_SECRET: is not a signing secret, which begins with whsec_ (its value is not shown)",
				"SMTP_URL: receipts: SMTP URL: want smtp://host:port or smtp://user:password@host:port, or smtps://, with an IPv6 address in brackets, special characters percent-encoded, and nothing after the port",
				`SMTP_HELLO: "pod" is not a host name with a dot such as shop.example.com, or an address such as [192.0.2.1] or [IPv6:2001:db8::1]`,
				`RECEIPTS_FROM: "nobody" is not a sender such as receipts@example.com or Orders <receipts@example.com>`,
				noEventsURL,
				noEventsSecret,
				"DATABASE_URL: invalid port",
				"LEASE_DURATION: -1m30s is not from 100ms to 87600h0m0s",
				"COMPLETER_GRACE: 0s is not from 100ms to 29m59s",
			},
		},
		"a live key over plain http": {
			environment: []string{database, "STRIPE_SECRET_KEY=sk_live_1", "STRIPE_API_BASE=http://stripe-proxy:8080"},
			problems:    []string{"STRIPE_API_BASE: is plain http, which would expose a live key; use https"},
		},
		"a password whose part would be the port, and an organisation's key": {
			environment: []string{database, "STRIPE_SECRET_KEY=sk_org_live_canary", "STRIPE_API_BASE=https://u:12/canary@stripe-proxy"},
			problems:    []string{noKey, "STRIPE_API_BASE: is not an http or https URL without a query; leave it empty for Stripe itself"},
		},
		"a mail server without a sender, and an endpoint for events without a secret": {
			environment: []string{database, testKey, "SMTP_URL=smtp://mail.example.com:587", "EVENTS_URL=" + eventsURL},
			problems:    []string{"RECEIPTS_FROM: not set; expected the sender of the receipts, such as My Shop <orders@example.com>", noEventsSecret},
		},
		"a secret without an endpoint": {
			environment: []string{database, testKey, "EVENTS_SECRET=" + eventsSecret},
			problems:    []string{"EVENTS_URL: not set, but EVENTS_SECRET is"},
		},
		"an endpoint with a password, and three secrets": {
			environment: []string{database, testKey, "EVENTS_URL=https://shop:canary@shop.example", "EVENTS_SECRET=" + eventsSecret + "," + eventsSecret + "," + eventsSecret},
			problems:    []string{noEventsURL, noEventsSecret},
		},
		"durations in the wrong order": { // (R9, order of the durations)
			environment: []string{database, testKey, "STEP_TIMEOUT=2m", "LEASE_DURATION=90s", "COMPLETER_GRACE=10m", "CHARGE_WINDOW=10m", "KEY_RETENTION=10m"},
			problems: []string{
				"LEASE_DURATION: 1m30s is not more than STEP_TIMEOUT, 2m0s",
				"CHARGE_WINDOW: 10m0s is not more than COMPLETER_GRACE, 10m0s",
				"KEY_RETENTION: 10m0s is not more than CHARGE_WINDOW, 10m0s",
			},
		},
		"durations for which the provider may have forgotten a create": { // (R12, read first)
			environment: []string{database, testKey, "COMPLETER_GRACE=30m", "CHARGE_WINDOW=23h1s"},
			problems: []string{
				"COMPLETER_GRACE: 30m0s is not from 100ms to 29m59s",
				"CHARGE_WINDOW: 23h0m1s is not from 100ms to 23h0m0s",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			setenv(t, test.environment...)
			_, err := app.Load("DATABASE_URL", "STRIPE_SECRET_KEY")
			require.EqualError(t, err, "wrong configuration:\n  "+strings.Join(test.problems, "\n  ")+"\norders help env lists every variable")
			require.NotContains(t, err.Error(), "canary")
		})
	}
}

// Each variable is rejected by its name or has the clean value, however a file or a template
// distorts it.
func TestLoad_distortedValues(t *testing.T) {
	clean := map[string]string{
		"DATABASE_URL": "postgres://u:p@127.0.0.1:5432/orders", "STRIPE_SECRET_KEY": "sk_test_canary",
		"STRIPE_WEBHOOK_SECRET": "whsec_canary", "SMTP_URL": "smtp://shop:canary@mail.example.com:587", "SMTP_HELLO": "shop.example.com",
		"RECEIPTS_FROM": "My Shop <orders@example.com>",
		"EVENTS_URL":    eventsURL, "EVENTS_SECRET": eventsSecret,
	}
	for name, fallback := range app.Defaults() {
		value := cmp.Or(clean[name], fallback, "http://127.0.0.1:12111")
		load := func(value string) (*app.Config, error) {
			setenv(t, database, testKey, "RECEIPTS_FROM=shop@example.com", "EVENTS_URL="+eventsURL, "EVENTS_SECRET="+eventsSecret, name+"="+value)
			return app.Load("DATABASE_URL", "STRIPE_SECRET_KEY")
		}
		want, err := load(value)
		require.NoError(t, err)
		for _, format := range []string{"%s\n", "%s\r\n", "\t%s", "%s\u00a0", `"%s"`, "'%s'", "%s\nX=1"} {
			got, err := load(fmt.Sprintf(format, value))
			if err == nil {
				require.Equal(t, want, got, "%s=%q", name, fmt.Sprintf(format, value))
				continue
			}
			require.ErrorContains(t, err, "\n  "+name+": ", format)
			require.NotContains(t, err.Error(), "canary")
		}
		got, err := load(" \n")
		unset, errUnset := load("")
		require.Equal(t, errUnset, err, name)
		require.Equal(t, unset, got, name)
	}
}

func TestMail_HelloName(t *testing.T) {
	t.Parallel()
	for hello, want := range map[string]string{"[192.0.2.1]": "[192.0.2.1]", "": "shop.example.com"} {
		m := app.Mail{SMTPHello: hello, ReceiptsFrom: "My Shop <orders@shop.example.com>"}
		require.Equal(t, want, m.HelloName())
	}
}

// Each variable with an address accepts one of IPv6, as its protocol writes it.
func TestLoad_addressOfIPv6(t *testing.T) {
	for setting, accepted := range map[string]bool{
		"LISTEN_ADDR=[::1]:8080": true, "LISTEN_ADDR=[fe80::1%eth0]:8080": true, "ADMIN_ADDR=[::ffff:127.0.0.1]:8081": true, "LISTEN_ADDR=::1:8080": false,
		"STRIPE_API_BASE=http://[fe80::1%25eth0]:12111": true,
		"SMTP_URL=smtp://[::1]":                         true, "SMTP_URL=smtps://u:p@[fe80::1%25eth0]:465": true, "SMTP_URL=smtp://::1": false,
		"SMTP_HELLO=[IPv6:2001:db8::1]": true, "SMTP_HELLO=[192.0.2.1]": true, "SMTP_HELLO=[2001:db8::1]": false, "SMTP_HELLO=2001:db8::1": false,
	} {
		setenv(t, database, testKey, "RECEIPTS_FROM=orders@example.com", setting)
		config, err := app.Load()
		require.Equal(t, accepted, err == nil, "%s: %v", setting, err)
		if url, found := strings.CutPrefix(setting, "STRIPE_API_BASE="); found {
			require.Equal(t, url, config.ProviderURL())
		}
	}
}

// The texts have each variable, with the default that is used. Only an empty ADMIN_ADDR means something else.
func TestVariables(t *testing.T) {
	var fields strings.Builder
	require.NoError(t, envconfig.Usagef("", new(app.Config), &fields, `{{range .}}{{.Key}}={{.Tags.Get "default"}}
{{end}}`))
	want := map[string]string{}
	for field := range strings.FieldsSeq(fields.String()) {
		name, value, _ := strings.Cut(field, "=")
		want[name] = value
	}
	require.Equal(t, want, app.Defaults())

	setenv(t)
	unset, err := app.Load()
	require.NoError(t, err)
	for _, name := range names {
		t.Setenv(name, "")
	}
	empty, err := app.Load()
	require.NoError(t, err)
	require.Empty(t, empty.AdminAddr)
	empty.AdminAddr = unset.AdminAddr
	require.Equal(t, unset, empty)
}

// By the defaults, the time-out that the contract recommends is longer than a run.
func TestLoad_contract(t *testing.T) {
	setenv(t)
	config, err := app.Load()
	require.NoError(t, err)
	stated := regexp.MustCompile(`runs for at most (\d+) seconds, [^.]*\. So give each attempt a time-out\s+of (\d+) seconds`).FindSubmatch(ordersapi.Spec)
	require.NotNil(t, stated)
	run, err := time.ParseDuration(string(stated[1]) + "s")
	require.NoError(t, err)
	timeout, err := time.ParseDuration(string(stated[2]) + "s")
	require.NoError(t, err)
	require.Equal(t, config.LongestRun(), run)
	require.Greater(t, timeout, run)
}

func TestExampleEnv_inAShell(t *testing.T) {
	t.Parallel()
	shell := exec.CommandContext(t.Context(), "sh", "-c", `set -eu; set -a; . /dev/stdin; sh -c 'echo "$LEASE_DURATION,$DATABASE_URL,$LISTEN_ADDR"'`)
	shell.Env = []string{"PATH=" + os.Getenv("PATH")}
	shell.Stdin = strings.NewReader(app.EnvTemplate())
	out, err := shell.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "90s,,\n", string(out))
}

func TestSecret_notPrinted(t *testing.T) {
	t.Parallel()
	const canary = "canary"
	secret := app.Secret(canary)
	config := app.Config{Database: app.Database{DatabaseURL: canary}, Stripe: app.Stripe{SecretKey: canary}, Mail: app.Mail{SMTPURL: canary}}
	values := []any{secret, &secret, config, &config, []app.Secret{secret}}
	var out bytes.Buffer
	for _, value := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%t", "%10s", "%T %v"} {
			fmt.Fprintf(&out, verb, value)
		}
		encoded, err := json.Marshal(value)
		require.NoError(t, err)
		out.Write(encoded)
		for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			slog.New(handler).With("with", value).WithGroup("group").Info("line", "value", value)
		}
	}
	for _, format := range []string{"%s", "%x", "%X", "% x"} {
		require.NotContains(t, out.String(), fmt.Sprintf(format, canary))
	}
	require.Equal(t, canary, string(secret), "a conversion shows it")
}

func TestMain(m *testing.M) { os.Exit(dbtest.Main{M: m}.Run()) }
