package doctor_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/cmd/internal/doctor"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/payments/stripetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dbtest.Main{M: m}) }

// longTimeout is longer than any check takes on a busy machine.
const longTimeout = time.Minute

// validEnvironment passes every check except durability, which test databases trade
// for speed.
func validEnvironment(t *testing.T, pool *pgxpool.Pool) *doctor.Environment {
	t.Helper()
	stripe := stripetest.New(stripetest.Options{})
	server := httptest.NewServer(stripe)
	t.Cleanup(server.Close)
	t.Cleanup(stripe.Close)
	return &doctor.Environment{
		Database: boot.Database{URL: boot.Secret(dbtest.URL(pool))},
		Stripe:   boot.Stripe{SecretKey: "sk_test_canary", APIBase: server.URL, WebhookSecret: "whsec_canary"},
		Mail:     boot.Mail{SMTPURL: boot.Secret("smtp://tester:canary@" + newMailServer(t)), From: "receipts@example.com"},
		Durations: boot.Durations{
			StripeTimeout:  boot.Duration{Duration: 20 * time.Second},
			LockTimeout:    boot.Duration{Duration: 90 * time.Second},
			CompleterGrace: boot.Duration{Duration: 5 * time.Minute},
			ChargeWindow:   boot.Duration{Duration: 24 * time.Hour},
			KeyRetention:   boot.Duration{Duration: 72 * time.Hour},
		},
	}
}

// check runs all checks and returns the line of each by its name.
func check(t *testing.T, e *doctor.Environment, timeout time.Duration) map[string]string {
	t.Helper()
	lines := map[string]string{}
	for _, result := range (doctor.Checker{Environment: e, Timeout: timeout}).Run(t.Context()) {
		line := result.String()
		require.NotContains(t, line, "canary")
		require.NotContains(t, line, "\n")
		require.NotContains(t, lines, result.Check, "two results of one check")
		lines[result.Check] = line
	}
	return lines
}

// overrideFunction makes the sessions of the database resolve a name to another
// function than PostgreSQL's own.
func overrideFunction(t *testing.T, pool *pgxpool.Pool, function string) {
	t.Helper()
	var database string
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT quote_ident(current_database())").Scan(&database))
	for _, statement := range []string{
		"CREATE SCHEMA overrides",
		"CREATE FUNCTION overrides." + function,
		"ALTER DATABASE " + database + " SET search_path = overrides, pg_catalog, public",
	} {
		_, err := pool.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
}

func execute(t *testing.T, pool *pgxpool.Pool, statement string) {
	t.Helper()
	var database string
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT quote_ident(current_database())").Scan(&database))
	_, err := pool.Exec(t.Context(), strings.ReplaceAll(statement, "DATABASE this", "DATABASE "+database))
	require.NoError(t, err)
}

func TestRun_valid(t *testing.T) {
	t.Parallel()
	lines := check(t, validEnvironment(t, dbtest.New(t)), longTimeout)
	delete(lines, "durability") // see validEnvironment
	delete(lines, "pooler")     // make pgbouncer-check runs the tests through one
	require.Len(t, lines, 11)
	for name, line := range lines {
		require.Regexp(t, "^✓ ", line, name)
	}
}

func TestRun_database(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		prepare func(*testing.T, *pgxpool.Pool)
		setting string // of the connection string
		check   string
		want    []string // in that line
	}{
		"an old server": {
			prepare: func(t *testing.T, pool *pgxpool.Pool) {
				overrideFunction(t, pool, `current_setting(name text) RETURNS text LANGUAGE sql AS
					$$ SELECT CASE name WHEN 'server_version' THEN '14.9' WHEN 'server_version_num' THEN '140009' ELSE pg_catalog.current_setting(name) END $$`)
			},
			check: "database",
			want:  []string{"✗ ", "PostgreSQL 14.9 is too old → upgrade it to 15 or later"},
		},
		"a standby": {
			prepare: func(t *testing.T, pool *pgxpool.Pool) {
				overrideFunction(t, pool, "pg_is_in_recovery() RETURNS boolean LANGUAGE sql AS 'SELECT true'")
			},
			check: "database",
			want:  []string{"✗ ", "is a standby, which is read-only → name the primary in DATABASE_URL"},
		},
		"read-only sessions": {
			prepare: func(t *testing.T, pool *pgxpool.Pool) {
				execute(t, pool, "ALTER DATABASE this SET default_transaction_read_only = on")
			},
			check: "database",
			want:  []string{"✗ ", "opens sessions read-only → ALTER DATABASE"},
		},
		"synchronous_commit off": {
			prepare: func(t *testing.T, pool *pgxpool.Pool) {
				execute(t, pool, "ALTER DATABASE this SET synchronous_commit = off")
			},
			check: "durability",
			want:  []string{"✗ ", "synchronous_commit off: a crash may lose orders whose cards were charged → turn it on"},
		},
		"no lock_timeout": {
			setting: "lock_timeout=0",
			check:   "sessions",
			want:    []string{"✗ ", "the database session has no lock_timeout", "ALTER ROLE"},
		},
		"clock five minutes ahead": {
			prepare: func(t *testing.T, pool *pgxpool.Pool) {
				overrideFunction(t, pool, "clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT pg_catalog.clock_timestamp() + interval '5 minutes' $$")
			},
			check: "clock",
			want:  []string{"✗ ", "the database's clock is 5m", " ahead of this machine's → run a time service"},
		},
		"clock half a minute behind": {
			prepare: func(t *testing.T, pool *pgxpool.Pool) {
				overrideFunction(t, pool, "clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT pg_catalog.clock_timestamp() - interval '30 seconds' $$")
			},
			check: "clock",
			want:  []string{"! ", "s behind this machine's → run a time service"},
		},
		"stuck keys": {
			prepare: func(t *testing.T, pool *pgxpool.Pool) {
				account := idempotencytest.Account(t, pool)
				for i, age := range []string{"1 hour", "1 hour", "100 hours"} {
					request := idempotency.Request{
						AccountID: account, Key: idempotency.Key("a-waiting-key-00" + string(rune('0'+i))), Method: "POST", Path: "/", Params: []byte("{}"),
					}
					id := idempotencytest.PutKey(t, pool, request, "anything", idempotencytest.State{Point: "midway"})
					_, err := pool.Exec(t.Context(), `
						UPDATE idempotency_keys
						   SET created_at = now() - $3::interval,
						       last_run_at = now() - $3::interval,
						       needs_review_at = CASE WHEN $4 THEN now() END
						 WHERE account_id = $1 AND id = $2`, account, id, age, i == 0)
					require.NoError(t, err)
				}
			},
			check: "keys",
			want: []string{
				"! ", "needing review: 1, abandoned: 2, unfinished past KEY_RETENTION: 1 → ",
				"orders keys list shows them", "orders completer finishes them", "orders keys show",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.New(t, postgres.Configure)
			if test.prepare != nil {
				test.prepare(t, pool)
			}
			e := validEnvironment(t, pool)
			e.Database.URL = withSetting(e.Database.URL, test.setting)
			lines := check(t, e, longTimeout)
			for _, part := range test.want {
				require.Contains(t, lines[test.check], part)
			}
			require.Regexp(t, "^✓ ", lines["stripe"], "the other checks run")
		})
	}
}

func withSetting(url boot.Secret, setting string) boot.Secret {
	switch {
	case setting == "":
		return url
	case strings.Contains(string(url), "?"):
		return url + boot.Secret("&"+setting)
	case strings.HasPrefix(string(url), "postgres"):
		return url + boot.Secret("?"+setting)
	default:
		return url + boot.Secret(" "+setting)
	}
}

func TestRun_emptyDatabase(t *testing.T) {
	t.Parallel()
	lines := check(t, validEnvironment(t, dbtest.Empty(t)), longTimeout)
	require.Contains(t, lines["migrations"], "✗ ")
	require.Contains(t, lines["migrations"], "the database schema is out of date")
	require.Contains(t, lines["migrations"], "→ orders migrate up")
}

func TestRun_newerDatabase(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	_, err := pool.Exec(t.Context(), "INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, true)")
	require.NoError(t, err)
	lines := check(t, validEnvironment(t, pool), longTimeout)
	require.Contains(t, lines["migrations"], "! ")
	require.Contains(t, lines["migrations"], "version 99, which a newer program has applied")
}

func TestRun_unreachableDatabase(t *testing.T) {
	t.Parallel()
	e := validEnvironment(t, dbtest.New(t))
	e.Database.URL = boot.Secret("postgres://tester:canary@" + unusedAddress(t) + "/orders")
	lines := check(t, e, longTimeout)
	require.Contains(t, lines["database"], "✗ ")
	require.Contains(t, lines["database"], "connection refused")
	require.Contains(t, lines["database"], "→ start the server, grant access to this machine and role, or correct DATABASE_URL")
	for _, name := range []string{"durability", "pooler", "sessions", "migrations", "clock", "keys"} {
		require.Contains(t, lines[name], "skipped: there is no connection")
	}
	require.Regexp(t, "^✓ ", lines["mail"])
}

// A dependency that accepts the connection and does not respond delays the results
// at most by the timeout.
func TestRun_unresponsiveDependencies(t *testing.T) {
	t.Parallel()
	e := validEnvironment(t, dbtest.New(t))
	silent := silentServer(t)
	e.Database.URL = boot.Secret("postgres://tester:canary@" + silent + "/orders?sslmode=disable")
	e.Stripe.APIBase = "http://" + silent
	e.Mail.SMTPURL = boot.Secret("smtp://tester:canary@" + silent)
	begin := time.Now()
	lines := check(t, e, 300*time.Millisecond)
	require.Less(t, time.Since(begin), longTimeout/2)
	for _, name := range []string{"database", "stripe", "mail"} {
		require.Contains(t, lines[name], "✗ ", name)
	}
}

func TestRun_order(t *testing.T) {
	t.Parallel()
	e := &doctor.Environment{}
	e.Database.URL = "postgres://127.0.0.1:1/" + boot.Secret(uuid.NewString())
	e.Stripe = boot.Stripe{SecretKey: "sk_test_canary", APIBase: "http://" + unusedAddress(t)}
	e.Mail.SMTPURL = boot.Secret("smtp://" + unusedAddress(t))
	var order []string
	for _, result := range (doctor.Checker{Environment: e, Timeout: longTimeout}).Run(t.Context()) {
		order = append(order, result.Check)
	}
	require.Equal(t, []string{
		"configuration", "database", "durability", "pooler", "sessions", "migrations", "clock", "keys",
		"stripe key", "stripe", "stripe clock", "webhook", "mail",
	}, order)
}
