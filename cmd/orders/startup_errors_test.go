package main_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/payments/stripetest"
)

func TestStartupError(t *testing.T) {
	t.Parallel()
	const unreachable = "DATABASE_URL=postgres://u:canary@127.0.0.1:1/orders"
	empty, err := url.Parse(dbtest.URL(dbtest.Empty(t)))
	require.NoError(t, err)
	query := empty.Query()
	query.Set("role", "pg_monitor")
	empty.RawQuery = query.Encode()
	for name, test := range map[string]struct {
		settings []string
		commands string
		reasons  []string
	}{
		"several invalid variables": {
			[]string{"DATABASE_URL=postgres://u:canary@h:99999/x", "STRIPE_SECRET_KEY=sk_live_canary", "LOG_FORMAT=xml", "RECEIPTS_FROM=x"},
			"serve, migrate up",
			[]string{"orders: wrong configuration:\n  LOG_FORMAT: ", "\n  DATABASE_URL: invalid port\n"},
		},
		"durations out of order": { // every command that reads keys checks them (R9, order of the durations)
			[]string{unreachable, "STRIPE_SECRET_KEY=sk_test_1", "LEASE_DURATION=20s", "KEY_RETENTION=72s"},
			"completer, reaper, keys resolve K --reason x",
			[]string{"\n  LEASE_DURATION: 20s is not more than STEP_TIMEOUT, 20s" +
				"\n  KEY_RETENTION: 1m12s is not more than CHARGE_WINDOW, 23h0m0s\n"},
		},
		"no provider": {[]string{unreachable}, "keys retry K --reason x, worker", []string{"\n  STRIPE_SECRET_KEY: not set\n"}},
		"outdated schema": { // the role cannot create tables
			[]string{"DATABASE_URL=" + empty.String(), "STRIPE_SECRET_KEY=sk_test_1", "LISTEN_ADDR=127.0.0.1:0"},
			"serve, keys list",
			[]string{"orders: the database schema is out of date: run `orders migrate up` (missing: 00001_initial.sql"},
		},
		"unreachable database": {
			[]string{unreachable, "STRIPE_SECRET_KEY=sk_test_1"},
			"worker, migrate up",
			[]string{"connect to the database (DATABASE_URL): "},
		},
	} {
		for command := range strings.SplitSeq(test.commands, ", ") {
			t.Run(name+"/"+command, func(t *testing.T) {
				t.Parallel()
				programtest.RequireStartupError(t, programtest.Environ(t, test.settings...), command, test.reasons...)
			})
		}
	}
}

// With these settings, a crash of the database server can lose a charged order.
func TestServe_settingsThatLose(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.serve(f.with("DATABASE_URL=" + dbtest.URL(f.pool) + "&synchronous_commit=off"))
	a.WaitFor(&a.Stderr, `level=WARN msg="setting of the database" setting="synchronous_commit = off: a crash of the server can lose orders`)
	a.Stop()
}

// What Stripe rejects can never work; what does not answer is a warning, and replays need no
// provider.
func TestStartup_provider(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rule   stripetest.Rule
		reason string // of the error, or else of the warning
		serves bool
	}{
		"rejected key":  {stripetest.Rule{Fault: stripetest.Unauthorized}, "status 401", false},
		"no permission": {stripetest.Rule{Fault: stripetest.Forbidden, Endpoint: "GET /v1/refunds"}, "read Refunds: .*required permissions", false},
		"unavailable":   {stripetest.Rule{Fault: stripetest.Unavailable}, "status 503", true},
		"no response":   {stripetest.Rule{Fault: stripetest.HoldArrival}, "deadline exceeded", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			test.rule.Times = stripetest.Always
			f.stripe.Inject(test.rule)
			if test.serves {
				a := f.serve(f.environ)
				require.Equal(t, 200, a.Ready())
				if test.rule.Fault == stripetest.HoldArrival {
					require.NotContains(t, a.Stderr.String(), "STRIPE_SECRET_KEY", "it serves before the provider responds")
				}
				a.WaitFor(&a.Stderr, `level=WARN msg="STRIPE_SECRET_KEY: not available.*`+test.reason)
				return
			}
			for _, command := range []string{"serve", "reconcile"} {
				_, _, stderr := programtest.Run(t, f.environ, command)
				require.Regexp(t, `(?m)^orders: (records were not compared: )?STRIPE_SECRET_KEY: .*`+test.reason, stderr)
			}
		})
	}
}
