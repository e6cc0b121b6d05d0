package boot_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/cmd/internal/boot"
)

// names are all variables that boot reads.
var names = []string{
	"DATABASE_URL", "LISTEN_ADDR", "ADMIN_ADDR", "STRIPE_SECRET_KEY", "STRIPE_API_BASE", "STRIPE_TIMEOUT", "STRIPE_WEBHOOK_SECRET",
	"SMTP_URL", "RECEIPTS_FROM",
	"LOCK_TIMEOUT", "COMPLETER_GRACE", "KEY_RETENTION", "COMPLETER_MAX_ATTEMPTS", "LOG_LEVEL", "LOG_FORMAT",
}

// all is every section there is.
type all struct {
	boot.Serve
	boot.Mail
	boot.Completer
}

// setenv makes the test's environment exactly what settings say, "NAME=value"
// each.
func setenv(t *testing.T, settings ...string) {
	t.Helper()
	for _, name := range names {
		t.Setenv(name, "") // remembers what to put back
		require.NoError(t, os.Unsetenv(name))
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
)

const (
	noDatabase = "DATABASE_URL: not set; expected postgres://user:pass@host:5432/orders. " +
		"docker compose up -d starts a database at postgres://orders:orders@127.0.0.1:5432/orders; orders dev needs none"
	noKey    = "STRIPE_SECRET_KEY: not set; get a test key (sk_test_…) at https://dashboard.stripe.com/test/apikeys; orders dev needs none"
	wrongKey = "STRIPE_SECRET_KEY: is not a secret key, which begins with sk_ or rk_ (its value is not shown); " +
		"get a test key (sk_test_…) at https://dashboard.stripe.com/test/apikeys; orders dev needs none"
	noTestKey = "STRIPE_SECRET_KEY: is not a test key (its value is not shown), and orders dev and orders demo take no other; " +
		"expected sk_test_… or rk_test_…"
	noWebhookSecret = "STRIPE_WEBHOOK_SECRET: is not a signing secret, which begins with whsec_ (its value is not shown); " +
		"get it from the endpoint's page at https://dashboard.stripe.com/test/webhooks, or leave it empty to do without the webhook"
	unreadable = "DATABASE_URL: cannot be read (its value is not shown); expected postgres://user:pass@host:5432/orders"
)

func TestLoad(t *testing.T) {
	tests := map[string]struct {
		environment []string
		local       bool
		faults      []string // in this order; none: it is loaded
	}{
		"what is needed and nothing else": {
			environment: []string{database, testKey},
		},
		"nothing at all": {
			faults: []string{noDatabase, noKey},
		},
		"nothing at all, where it is brought along": {
			local: true,
		},
		"empty variables count as not set": {
			environment: []string{"DATABASE_URL=", "STRIPE_SECRET_KEY=", "LISTEN_ADDR=", "STRIPE_TIMEOUT=", "LOG_LEVEL=", "SMTP_URL=", "RECEIPTS_FROM="},
			faults:      []string{noDatabase, noKey},
		},
		"everything is wrong": {
			environment: []string{
				"DATABASE_URL=postgres://u:canary@host:99999/x", "LISTEN_ADDR=8080", "ADMIN_ADDR=localhost", "STRIPE_SECRET_KEY=pk_test_canary",
				"STRIPE_API_BASE=localhost:12111", "STRIPE_TIMEOUT=20", "STRIPE_WEBHOOK_SECRET=sk_test_canary", "SMTP_URL=http://u:canary@host", "RECEIPTS_FROM=nobody",
				"LOCK_TIMEOUT=-90s", "COMPLETER_GRACE=0s", "KEY_RETENTION=3 days", "COMPLETER_MAX_ATTEMPTS=0", "LOG_LEVEL=loud", "LOG_FORMAT=xml",
			},
			faults: []string{
				unreadable,
				`LISTEN_ADDR: "8080" is not host:port, such as :8080 or 127.0.0.1:8080`,
				`ADMIN_ADDR: "localhost" is not host:port, such as 127.0.0.1:8081; empty turns it off`,
				wrongKey,
				"STRIPE_API_BASE: is not an http or https URL; leave it empty for Stripe itself",
				noWebhookSecret,
				`STRIPE_TIMEOUT: "20" is not a positive duration such as 90s, 5m or 72h`,
				`LOCK_TIMEOUT: "-90s" is not a positive duration such as 90s, 5m or 72h`,
				`COMPLETER_GRACE: "0s" is not a positive duration such as 90s, 5m or 72h`,
				`KEY_RETENTION: "3 days" is not a positive duration such as 90s, 5m or 72h`,
				`LOG_LEVEL: "loud" is none of debug, info, warn, error`,
				`LOG_FORMAT: "xml" is neither text nor json`,
				"SMTP_URL: receipts: SMTP URL: want smtp://user:password@host:port or smtps://…: unknown scheme",
				`RECEIPTS_FROM: "nobody" is not a sender such as receipts@example.com or Orders <receipts@example.com>`,
				`COMPLETER_MAX_ATTEMPTS: "0" is not a positive number`,
			},
		},
		"a webhook's secret": {
			environment: []string{database, testKey, "STRIPE_WEBHOOK_SECRET=whsec_1"},
		},
		"a webhook's secret that anybody could guess": {
			environment: []string{database, testKey, "STRIPE_WEBHOOK_SECRET=whsec_"},
			faults:      []string{noWebhookSecret},
		},
		"a connection string that is no URL": {
			environment: []string{"DATABASE_URL=password=canary host", testKey},
			faults:      []string{unreadable},
		},
		"a connection string of words": {
			environment: []string{"DATABASE_URL=host=127.0.0.1 user=u password=p dbname=orders", testKey},
		},
		"a connection string that lets pgx guess types": {
			environment: []string{database + "?default_query_exec_mode=exec", testKey},
			faults: []string{"DATABASE_URL: its default_query_exec_mode leaves types to guess, and cannot send what an order holds; " +
				"behind a pooler it is cache_describe, else none is needed"},
		},
		"a connection string for a pooler": {
			environment: []string{database + "?default_query_exec_mode=cache_describe", testKey},
		},
		"ports that do not exist": {
			environment: []string{database, testKey, "LISTEN_ADDR=:65536"},
			faults:      []string{`LISTEN_ADDR: ":65536" is not host:port, such as :8080 or 127.0.0.1:8080`},
		},
		"a port left to the system": {
			environment: []string{database, testKey, "LISTEN_ADDR=127.0.0.1:0"},
		},
		"durations in the wrong order": {
			environment: []string{database, testKey, "STRIPE_TIMEOUT=2m", "LOCK_TIMEOUT=90s", "COMPLETER_GRACE=10m", "KEY_RETENTION=10m"},
			faults: []string{"durations out of order: STRIPE_TIMEOUT 2m0s !< LOCK_TIMEOUT 1m30s < COMPLETER_GRACE 10m0s !< KEY_RETENTION 10m0s " +
				"(STRIPE_TIMEOUT must be less than LOCK_TIMEOUT, COMPLETER_GRACE must be less than KEY_RETENTION)"},
		},
		"a duration that outruns a default": {
			environment: []string{database, testKey, "LOCK_TIMEOUT=20s"},
			faults: []string{"durations out of order: STRIPE_TIMEOUT 20s !< LOCK_TIMEOUT 20s < COMPLETER_GRACE 5m0s < KEY_RETENTION 72h0m0s " +
				"(STRIPE_TIMEOUT must be less than LOCK_TIMEOUT)"},
		},
		"a number of attempts that is none": {
			environment: []string{database, testKey, "COMPLETER_MAX_ATTEMPTS=many"},
			faults:      []string{`COMPLETER_MAX_ATTEMPTS: "many" is not a positive number`},
		},
		"a live key": {
			environment: []string{database, "STRIPE_SECRET_KEY=sk_live_canary"},
		},
		"a live key where test keys belong": {
			environment: []string{"STRIPE_SECRET_KEY=sk_live_canary"},
			local:       true,
			faults:      []string{noTestKey},
		},
		"a restricted live key where test keys belong": {
			environment: []string{"STRIPE_SECRET_KEY=rk_live_canary"},
			local:       true,
			faults:      []string{noTestKey},
		},
		"a kind of key nobody knows where test keys belong": {
			environment: []string{"STRIPE_SECRET_KEY=sk_org_live_canary"},
			local:       true,
			faults:      []string{noTestKey},
		},
		"a restricted test key where test keys belong": {
			environment: []string{"STRIPE_SECRET_KEY=rk_test_1"},
			local:       true,
		},
		"an address for the provider without its key": {
			environment: []string{"STRIPE_API_BASE=http://127.0.0.1:12111"},
			local:       true,
			faults:      []string{"STRIPE_API_BASE: set without STRIPE_SECRET_KEY; set both, or neither for a stand-in"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			setenv(t, test.environment...)
			load := boot.Load
			if test.local {
				load = boot.LoadLocal
			}
			var config all
			err := load(&config)
			if test.faults == nil {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, "wrong configuration:\n  "+strings.Join(test.faults, "\n  ")+"\norders help env lists every variable")
			require.NotContains(t, err.Error(), "canary")
		})
	}
}

func TestLoad_emptyVariablesTakeTheirDefaults(t *testing.T) {
	var settings []string
	for _, name := range names {
		settings = append(settings, name+"=")
	}
	setenv(t, append(settings, database, testKey)...)
	var config all
	require.NoError(t, boot.Load(&config))
	require.Equal(t, ":8080", config.Addr)
	require.Empty(t, config.AdminAddr, "set to nothing, it is off")
	require.Equal(t, "20s", config.StripeTimeout.String())
	require.Equal(t, "1m30s", config.LockTimeout.String())
	require.Equal(t, "5m0s", config.CompleterGrace.String())
	require.Equal(t, "72h0m0s", config.KeyRetention.String())
	require.Equal(t, 10, config.MaxAttempts.Int)
	require.Equal(t, "Orders <receipts@example.com>", config.From)
	require.Equal(t, "info", config.Level)
	require.Equal(t, "text", config.Format)
}

// A command reads its own variables only, so that one for the database does not
// ask for a key of Stripe's.
func TestLoad_readsWhatTheCommandNeeds(t *testing.T) {
	setenv(t, database, "LISTEN_ADDR=wrong", "STRIPE_TIMEOUT=wrong", "RECEIPTS_FROM=wrong")
	var store boot.Store
	require.NoError(t, boot.Load(&store))
	var upkeep boot.Upkeep
	require.ErrorContains(t, boot.Load(&upkeep), "STRIPE_TIMEOUT") // of the chain (R9)
	require.NotContains(t, boot.Load(&upkeep).Error(), "STRIPE_SECRET_KEY")
	var keys boot.Keys
	require.ErrorContains(t, boot.Load(&keys), "STRIPE_SECRET_KEY")
	var worker boot.Worker
	require.ErrorContains(t, boot.Load(&worker), "RECEIPTS_FROM")
	require.NotContains(t, boot.Load(&worker).Error(), "LISTEN_ADDR")
}

// Two processes on one machine cannot have one address, so only what takes
// requests has one without being told.
func TestLoad_adminOfTheAPIAlone(t *testing.T) {
	setenv(t, database, testKey)
	var serve boot.Serve
	require.NoError(t, boot.Load(&serve))
	require.Equal(t, "127.0.0.1:8081", serve.AdminAddr)
	var worker boot.Worker
	require.NoError(t, boot.Load(&worker))
	require.Empty(t, worker.AdminAddr)

	setenv(t, database, testKey, "ADMIN_ADDR=127.0.0.1:9000")
	require.NoError(t, boot.Load(&worker))
	require.Equal(t, "127.0.0.1:9000", worker.AdminAddr)
}

func TestPrintEnv(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	boot.PrintEnv(&out, nil)
	for _, name := range names {
		require.Contains(t, out.String(), "  "+name)
	}
	for line := range strings.Lines(out.String()) {
		require.LessOrEqual(t, len(strings.TrimSuffix(line, "\n")), 80)
	}

	out.Reset()
	boot.PrintEnv(&out, new(boot.Store))
	require.Contains(t, out.String(), "DATABASE_URL")
	require.Contains(t, out.String(), "LOG_LEVEL (default info)")
	require.NotContains(t, out.String(), "STRIPE_SECRET_KEY")
}
