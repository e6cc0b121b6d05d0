package app_test

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/cmd/internal/app"
)

var names = app.Names()

func setenv(t *testing.T, settings ...string) {
	t.Helper()
	for _, name := range names {
		t.Setenv(name, "") // restores the value after the test
		require.NoError(t, os.Unsetenv(name))
	}
	for _, setting := range os.Environ() { // libpq's
		if name, _, _ := strings.Cut(setting, "="); strings.HasPrefix(name, "PG") && name != "PG_BIN" {
			t.Setenv(name, "")
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
)

const (
	getKey     = "; get a test key (sk_test_…) at https://dashboard.stripe.com/test/apikeys; playground run needs none"
	noDatabase = "DATABASE_URL: not set; expected postgres://user:pass@host:5432/orders. " +
		"docker compose up -d starts a database at postgres://orders:orders@127.0.0.1:5432/orders; playground run needs none"
	noEventsURL    = "EVENTS_URL: is not an http or https URL without a user and a fragment, such as https://shop.example.com/events (its value is not shown)"
	noEventsSecret = "EVENTS_SECRET: is not whsec_ and the base64 of 24 to 64 bytes, or two of these with a comma between (its value is not shown); " +
		`generate one with echo "whsec_$(openssl rand -base64 32)"`
	noKey           = "STRIPE_SECRET_KEY: not set" + getKey
	noWebhookSecret = "STRIPE_WEBHOOK_SECRET: is not a signing secret, which begins with whsec_ (its value is not shown); " +
		"get it from the endpoint's page at https://dashboard.stripe.com/test/webhooks, or leave it empty to turn the webhook off"
)

func TestLoad(t *testing.T) {
	for name, test := range map[string]struct {
		environment []string
		problems    []string // in this order
	}{
		"empty variables count as not set": {
			environment: []string{"DATABASE_URL=", "STRIPE_SECRET_KEY=", "LISTEN_ADDR=", "STRIPE_TIMEOUT=", "LOG_LEVEL=", "SMTP_URL=", "RECEIPTS_FROM="},
			problems:    []string{noDatabase, noKey},
		},
		"every variable is invalid": {
			environment: []string{
				"DATABASE_URL=postgres://u:canary@host:99999/x", "LISTEN_ADDR=8080", "ADMIN_ADDR=localhost", "STRIPE_SECRET_KEY=whsec_canary",
				"STRIPE_API_BASE=localhost:12111", "STRIPE_TIMEOUT=20", "STRIPE_WEBHOOK_SECRET=sk_test_canary", "SMTP_URL=http://u:canary@host", "SMTP_HELLO=pod", "RECEIPTS_FROM=nobody",
				"EVENTS_URL=shop.example/canary", "EVENTS_SECRET=whsec_canary", "LOCK_TIMEOUT=-90s", "COMPLETER_GRACE=0s", "CHARGE_WINDOW=1d", "KEY_RETENTION=3 days",
				"LOG_LEVEL=loud", "LOG_FORMAT=xml",
			},
			problems: []string{
				`LISTEN_ADDR: "8080" is not a host:port such as 127.0.0.1:8080 or [::1]:8080`,
				`ADMIN_ADDR: "localhost" is not a host:port such as 127.0.0.1:8080 or [::1]:8080`,
				`STRIPE_TIMEOUT: "20" is not a duration such as 90s, 5m or 72h`,
				`CHARGE_WINDOW: "1d" is not a duration such as 90s, 5m or 72h`,
				`KEY_RETENTION: "3 days" is not a duration such as 90s, 5m or 72h`,
				`LOG_LEVEL: "loud" is not a level: debug, info, warn or error`,
				"DATABASE_URL: invalid port",
				"STRIPE_SECRET_KEY: is not a secret key, which begins with sk_ or rk_, not with sk_org_, and has only letters, digits and _ (its value is not shown)" + getKey,
				"STRIPE_API_BASE: is not an http or https URL without a query; leave it empty for Stripe itself",
				noWebhookSecret,
				"SMTP_URL: receipts: SMTP URL: want smtp://host:port or smtp://user:password@host:port, or smtps://, with an IPv6 address in brackets, special characters percent-encoded, and nothing after the port",
				`SMTP_HELLO: "pod" is not a host name with a dot such as shop.example.com, or an address such as [192.0.2.1] or [IPv6:2001:db8::1]`,
				`RECEIPTS_FROM: "nobody" is not a sender such as receipts@example.com or Orders <receipts@example.com>`,
				noEventsURL,
				noEventsSecret,
				"LOCK_TIMEOUT: -1m30s is not from 100ms to 87600h0m0s",
				"COMPLETER_GRACE: 0s is not from 100ms to 29m59s",
				`LOG_FORMAT: "xml" is neither text nor json`,
			},
		},
		"a live key over plain http": {
			environment: []string{database, "STRIPE_SECRET_KEY=sk_live_1", "STRIPE_API_BASE=http://stripe-proxy:8080"},
			problems:    []string{"STRIPE_API_BASE: is plain http, which would expose a live key; use https"},
		},
		"a password whose part would be the port": {
			environment: []string{database, testKey, "STRIPE_API_BASE=https://u:12/canary@stripe-proxy"},
			problems:    []string{"STRIPE_API_BASE: is not an http or https URL without a query; leave it empty for Stripe itself"},
		},
		"a mail server without a sender": {
			environment: []string{database, testKey, "SMTP_URL=smtp://mail.example.com:587"},
			problems:    []string{"RECEIPTS_FROM: not set; expected the sender of the receipts, such as My Shop <orders@example.com>"},
		},
		"a query mode that infers types": {
			environment: []string{database + "?default_query_exec_mode=exec", testKey},
			problems: []string{"DATABASE_URL: its default_query_exec_mode infers parameter types and cannot encode an order; " +
				"use cache_describe behind a pooler, and otherwise the default"},
		},
		"values that can never work": {
			environment: []string{
				database + "?sslmode=verify-full&sslrootcert=/missing.crt", "STRIPE_SECRET_KEY=sk_test_canary STRIPE_TIMEOUT=20s", "STRIPE_API_BASE=https://stripe-proxy/?to=stripe",
				"STRIPE_WEBHOOK_SECRET=whsec_canary'", "SMTP_HELLO=[mail]", "RECEIPTS_FROM=shop@localhost", "STRIPE_TIMEOUT=1ms", "KEY_RETENTION=900000h",
			},
			problems: []string{
				"DATABASE_URL: failed to configure TLS (unable to read CA file: open /missing.crt: no such file or directory)",
				"STRIPE_SECRET_KEY: is not a secret key, which begins with sk_ or rk_, not with sk_org_, and has only letters, digits and _ (its value is not shown)" + getKey,
				"STRIPE_API_BASE: is not an http or https URL without a query; leave it empty for Stripe itself",
				noWebhookSecret,
				`SMTP_HELLO: "[mail]" is not a host name with a dot such as shop.example.com, or an address such as [192.0.2.1] or [IPv6:2001:db8::1]`,
				`RECEIPTS_FROM: "shop@localhost" is not a sender such as receipts@example.com or Orders <receipts@example.com>`,
				"STRIPE_TIMEOUT: 1ms is not from 100ms to 87600h0m0s",
				"KEY_RETENTION: 900000h0m0s is not from 100ms to 87600h0m0s",
			},
		},
		"an endpoint for events without a secret": {
			environment: []string{database, testKey, "EVENTS_URL=" + eventsURL},
			problems:    []string{noEventsSecret},
		},
		"a secret without an endpoint": {
			environment: []string{database, testKey, "EVENTS_SECRET=" + eventsSecret},
			problems:    []string{"EVENTS_URL: not set, but EVENTS_SECRET is"},
		},
		"an endpoint with a password, and three secrets": {
			environment: []string{database, testKey, "EVENTS_URL=https://shop:canary@shop.example", "EVENTS_SECRET=" + eventsSecret + "," + eventsSecret + "," + eventsSecret},
			problems:    []string{noEventsURL, noEventsSecret},
		},
		"a fragment, and a secret without its prefix": {
			environment: []string{database, testKey, "EVENTS_URL=https://shop.example/#canary", "EVENTS_SECRET=" + strings.TrimPrefix(eventsSecret, "whsec_")},
			problems:    []string{noEventsURL, noEventsSecret},
		},
		"a port above 65535": {
			environment: []string{database, testKey, "LISTEN_ADDR=:65536"},
			problems:    []string{`LISTEN_ADDR: ":65536" is not a host:port such as 127.0.0.1:8080 or [::1]:8080`},
		},
		"durations in the wrong order": {
			environment: []string{database, testKey, "STRIPE_TIMEOUT=2m", "LOCK_TIMEOUT=90s", "COMPLETER_GRACE=10m", "CHARGE_WINDOW=10m", "KEY_RETENTION=10m"},
			problems: []string{
				"durations out of order: STRIPE_TIMEOUT 2m0s must be less than LOCK_TIMEOUT 1m30s",
				"durations out of order: COMPLETER_GRACE 10m0s must be less than CHARGE_WINDOW 10m0s",
				"durations out of order: CHARGE_WINDOW 10m0s must be less than KEY_RETENTION 10m0s",
			},
		},
		"durations for which the provider may have forgotten a create": { // (R12, read first)
			environment: []string{database, testKey, "COMPLETER_GRACE=30m", "CHARGE_WINDOW=23h1s"},
			problems: []string{
				"COMPLETER_GRACE: 30m0s is not from 100ms to 29m59s",
				"CHARGE_WINDOW: 23h0m1s is not from 100ms to 23h0m0s",
			},
		},
		"an unreadable duration between two in the wrong order": {
			environment: []string{database, testKey, "STRIPE_TIMEOUT=95s", "LOCK_TIMEOUT=1 minute", "COMPLETER_GRACE=90s"},
			problems: []string{
				`LOCK_TIMEOUT: "1 minute" is not a duration such as 90s, 5m or 72h`,
				"durations out of order: STRIPE_TIMEOUT 1m35s must be less than COMPLETER_GRACE 1m30s",
			},
		},
		"an organisation's key": {
			environment: []string{database, "STRIPE_SECRET_KEY=sk_org_live_canary"},
			problems:    []string{"STRIPE_SECRET_KEY: is not a secret key, which begins with sk_ or rk_, not with sk_org_, and has only letters, digits and _ (its value is not shown)" + getKey},
		},
	} {
		t.Run(name, func(t *testing.T) {
			setenv(t, test.environment...)
			var config app.Config
			err := app.Load(config.All()...)
			require.EqualError(t, err, "wrong configuration:\n  "+strings.Join(test.problems, "\n  ")+"\norders help env lists every variable")
			require.NotContains(t, err.Error(), "canary")
		})
	}
}

func TestLoad_accepted(t *testing.T) {
	for _, environment := range [][]string{
		{database, testKey},
		{database, testKey, "STRIPE_WEBHOOK_SECRET=whsec_1"},
		{database, testKey, "LISTEN_ADDR=127.0.0.1:0"},
		{database, "STRIPE_SECRET_KEY=sk_live_1", "STRIPE_API_BASE=https://user:canary@stripe-proxy"},
		{"DATABASE_URL=host=127.0.0.1 user=u password=p dbname=orders", testKey},
		{database + "?default_query_exec_mode=cache_describe", testKey},
	} {
		setenv(t, environment...)
		var config app.Config
		require.NoError(t, app.Load(config.All()...), environment)
		require.NotContains(t, config.ProviderURL(), "canary")
	}
}

func TestLoad_removed(t *testing.T) {
	for _, name := range []string{"EVENTS_SIGNING_KEY", "EVENTS_SIGNING_KEY_PREVIOUS"} {
		setenv(t, database, testKey)
		t.Setenv(name, "canary")
		err := app.Load(new(app.Config).All()...)
		require.ErrorContains(t, err, "\n  "+name+": was removed: set EVENTS_URL and EVENTS_SECRET instead (docs/events.md)\n")
		require.NotContains(t, err.Error(), "canary")
		t.Setenv(name, "")
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
		load := func(value string) (config app.Config, err error) {
			setenv(t, database, testKey, "RECEIPTS_FROM=shop@example.com", "EVENTS_URL="+eventsURL, "EVENTS_SECRET="+eventsSecret, name+"="+value)
			return config, app.Load(config.All()...)
		}
		want, err := load(value)
		require.NoError(t, err)
		for _, format := range []string{"%s\n", "%s\r\n", "%s ", " %s", "\t%s", "\ufeff%s", "%s\u00a0", `"%s"`, "'%s'", "\"%s\"\n", "%s\nX=1"} {
			got, err := load(fmt.Sprintf(format, value))
			if err == nil {
				require.Equal(t, want, got, "%s=%q", name, fmt.Sprintf(format, value))
				continue
			}
			require.ErrorContains(t, err, "\n  "+name+": ", format)
			require.NotContains(t, err.Error(), "canary")
		}
		if _, err := load("~" + value + "~"); err == nil {
			require.Contains(t, []string{"EVENTS_SIGNING_KEY", "EVENTS_SIGNING_KEY_PREVIOUS", "SMTP_HELLO"}, name, "it accepts any text")
		} else {
			require.Regexp(t, "\n  "+name+": .{10}", err.Error())
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
	for _, test := range []struct{ hello, host, want string }{
		{"mx.example.com", "worker.example.net", "mx.example.com"},
		{"[192.0.2.1]", "orders-worker-7d9c", "[192.0.2.1]"},
		{"", "worker.example.net", "worker.example.net"},
		{"", "orders-worker-7d9c", "shop.example.com"},
		{"", "", "shop.example.com"},
	} {
		m := app.Mail{SMTPHello: test.hello, ReceiptsFrom: "My Shop <orders@shop.example.com>"}
		require.Equal(t, test.want, m.HelloName(test.host))
	}
}

// Each variable with an address accepts one of IPv6, as its protocol writes it.
func TestLoad_addressOfIPv6(t *testing.T) {
	for setting, accepted := range map[string]bool{
		"LISTEN_ADDR=[::1]:8080": true, "LISTEN_ADDR=[fe80::1%eth0]:8080": true, "ADMIN_ADDR=[::ffff:127.0.0.1]:8081": true, "LISTEN_ADDR=::1:8080": false,
		"STRIPE_API_BASE=http://[::1]:12111": true, "STRIPE_API_BASE=http://[fe80::1%25eth0]:12111": true,
		"SMTP_URL=smtp://[::1]": true, "SMTP_URL=smtps://u:p@[fe80::1%25eth0]:465": true, "SMTP_URL=smtp://::1": false,
		"SMTP_HELLO=[IPv6:2001:db8::1]": true, "SMTP_HELLO=[IPv6:::ffff:192.0.2.1]": true, "SMTP_HELLO=[192.0.2.1]": true,
		"SMTP_HELLO=[2001:db8::1]": false, "SMTP_HELLO=[IPv6:192.0.2.1]": false, "SMTP_HELLO=[IPv6:fe80::1%eth0]": false,
		"SMTP_HELLO=2001:db8::1": false, "SMTP_HELLO=[192.0.2.1": false, "SMTP_HELLO=192.0.2.1]": false,
	} {
		setenv(t, database, testKey, "RECEIPTS_FROM=orders@example.com", setting)
		var config app.Config
		err := app.Load(config.All()...)
		require.Equal(t, accepted, err == nil, "%s: %v", setting, err)
		if url, found := strings.CutPrefix(setting, "STRIPE_API_BASE="); found {
			require.Equal(t, url, config.ProviderURL())
		}
	}
}

func TestLoad_emptyVariables(t *testing.T) {
	var settings []string
	for _, name := range names {
		settings = append(settings, name+"=")
	}
	setenv(t, append(settings, database, testKey)...)
	var config app.Config
	require.NoError(t, app.Load(config.All()...))
	require.Equal(t, app.Address(":8080"), config.ListenAddr)
	require.Empty(t, config.AdminAddr, "empty turns it off")
	require.Equal(t, "20s", config.StripeTimeout.String())
	require.Equal(t, "1m30s", config.LockTimeout.String())
	require.Equal(t, "5m0s", config.CompleterGrace.String())
	require.Equal(t, "23h0m0s", config.ChargeWindow.String())
	require.Equal(t, "72h0m0s", config.KeyRetention.String())
	require.Equal(t, "Orders <receipts@example.com>", config.ReceiptsSender())
	require.Equal(t, slog.LevelInfo, config.Level)
	require.Equal(t, "text", config.Format)
}

func TestLoad_variablesOfTheCommand(t *testing.T) {
	setenv(t, database, "LISTEN_ADDR=wrong", "RECEIPTS_FROM=wrong")
	var config app.Config
	load := func(groups ...any) error {
		t.Setenv("STRIPE_TIMEOUT", "wrong")
		return app.Load(groups...)
	}
	require.NoError(t, load(&config.Database, &config.Log))
	err := load(config.Keys()...)
	require.ErrorContains(t, err, "STRIPE_TIMEOUT", "all durations are compared")
	require.NotContains(t, err.Error(), "STRIPE_SECRET_KEY")
	err = load(config.Operations()...)
	require.ErrorContains(t, err, "STRIPE_SECRET_KEY")
	require.NotContains(t, err.Error(), "LISTEN_ADDR")
	require.EqualError(t, load(new(app.Mail)), "wrong configuration:\n"+
		"  RECEIPTS_FROM: \"wrong\" is not a sender such as receipts@example.com or Orders <receipts@example.com>\n"+
		"orders help env lists every variable")
	t.Setenv("RECEIPTS_FROM", "")
	require.NoError(t, load(new(app.Mail)))
}

func TestLoad_addresses(t *testing.T) {
	for _, test := range []struct {
		settings            []string
		addr, serve, worker app.Address
	}{
		{nil, ":8080", "127.0.0.1:8081", ""},
		{[]string{"LISTEN_ADDR=:9000", "ADMIN_ADDR=127.0.0.1:9001"}, ":9000", "127.0.0.1:9001", "127.0.0.1:9001"},
	} {
		setenv(t, test.settings...)
		var config app.Config
		require.NoError(t, app.Load(&config.Listen, &config.Admin))
		require.Equal(t, test.addr, config.ListenAddr)
		require.Equal(t, test.serve, config.AdminAddr)
		var worker app.Admin
		require.NoError(t, app.Load(worker.Optional()))
		require.Equal(t, test.worker, worker.AdminAddr)
	}
}

func TestPrintEnv(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, app.PrintEnv(&out, new(app.Config).All()...))
	for _, name := range names {
		require.Contains(t, out.String(), "  "+name)
	}
	require.NotContains(t, app.EnvTemplate(), "\n# \n", "each variable has a description")
	for line := range strings.Lines(out.String()) {
		require.LessOrEqual(t, len(strings.TrimSuffix(line, "\n")), 80)
	}

	out.Reset()
	require.NoError(t, app.PrintEnv(&out, new(app.Database), new(app.Log)))
	require.Contains(t, out.String(), "DATABASE_URL")
	require.Contains(t, out.String(), "LOG_LEVEL (default info)")
	require.NotContains(t, out.String(), "STRIPE_SECRET_KEY")
}

func TestExampleEnv_inAShell(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"LISTEN_ADDR":  "",
		"LOCK_TIMEOUT": "90s",
		"DATABASE_URL": "",
	} {
		shell := exec.CommandContext(t.Context(), "sh", "-c", `set -eu; set -a; . /dev/stdin; sh -c "printf %s \"\$`+name+`\""`)
		shell.Env = []string{"PATH=" + os.Getenv("PATH")}
		shell.Stdin = strings.NewReader(app.EnvTemplate())
		out, err := shell.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Equal(t, value, string(out), name)
	}
}
