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

// patient is long against anything that a check waits for on a busy machine.
const patient = time.Minute

// patientEnvironment has nothing that a check finds fault with, but for the
// durability of a database for tests.
func patientEnvironment(t *testing.T, pool *pgxpool.Pool) *doctor.Environment {
	t.Helper()
	stripe := stripetest.New(stripetest.Options{})
	server := httptest.NewServer(stripe)
	t.Cleanup(server.Close)
	t.Cleanup(stripe.Close)
	return &doctor.Environment{
		Database: boot.Database{URL: boot.Secret(dbtest.URL(pool))},
		Stripe:   boot.Stripe{SecretKey: "sk_test_canary", APIBase: server.URL, WebhookSecret: "whsec_canary"},
		Mail:     boot.Mail{SMTPURL: boot.Secret("smtp://shop:canary@" + newMailServer(t)), From: "shop@example.com"},
		Durations: boot.Durations{
			StripeTimeout:  boot.Duration{Duration: 20 * time.Second},
			LockTimeout:    boot.Duration{Duration: 90 * time.Second},
			CompleterGrace: boot.Duration{Duration: 5 * time.Minute},
			KeyRetention:   boot.Duration{Duration: 72 * time.Hour},
		},
	}
}

// examine returns the line about each thing.
func examine(t *testing.T, e *doctor.Environment, limit time.Duration) map[string]string {
	t.Helper()
	lines := map[string]string{}
	for _, finding := range doctor.Examine(t.Context(), doctor.Examination{Environment: e, Limit: limit}) {
		line := finding.String()
		require.NotContains(t, line, "canary")
		require.NotContains(t, line, "\n")
		require.NotContains(t, lines, finding.About, "two lines about one thing")
		lines[finding.About] = line
	}
	return lines
}

// lie makes the database's sessions find another function than PostgreSQL's own.
func lie(t *testing.T, pool *pgxpool.Pool, function string) {
	t.Helper()
	var database string
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT quote_ident(current_database())").Scan(&database))
	for _, statement := range []string{
		"CREATE SCHEMA lies",
		"CREATE FUNCTION lies." + function,
		"ALTER DATABASE " + database + " SET search_path = lies, pg_catalog, public",
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

func TestExamine_aGoodDatabase(t *testing.T) {
	t.Parallel()
	lines := examine(t, patientEnvironment(t, dbtest.New(t)), patient)
	delete(lines, "durability") // trades it for speed
	delete(lines, "pooler")     // make pgbouncer-check puts one in between
	require.Len(t, lines, 11)
	for about, line := range lines {
		require.Regexp(t, "^✓ ", line, about)
	}
}

func TestExamine_theDatabase(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		prepare func(*testing.T, *pgxpool.Pool)
		setting string // of the connection string
		about   string
		want    []string // in that line
	}{
		"it is too old": {
			prepare: func(t *testing.T, pool *pgxpool.Pool) {
				lie(t, pool, `current_setting(name text) RETURNS text LANGUAGE sql AS
					$$ SELECT CASE name WHEN 'server_version' THEN '14.9' WHEN 'server_version_num' THEN '140009' ELSE pg_catalog.current_setting(name) END $$`)
			},
			about: "database",
			want:  []string{"✗ ", "PostgreSQL 14.9 is too old → upgrade it to 15 or later"},
		},
		"it is a standby": {
			prepare: func(t *testing.T, pool *pgxpool.Pool) {
				lie(t, pool, "pg_is_in_recovery() RETURNS boolean LANGUAGE sql AS 'SELECT true'")
			},
			about: "database",
			want:  []string{"✗ ", "is a standby, which takes no orders → name the primary in DATABASE_URL"},
		},
		"it opens sessions read-only": {
			prepare: func(t *testing.T, pool *pgxpool.Pool) {
				execute(t, pool, "ALTER DATABASE this SET default_transaction_read_only = on")
			},
			about: "database",
			want:  []string{"✗ ", "opens sessions read-only → ALTER DATABASE"},
		},
		"its COMMIT does not wait for the disk": {
			prepare: func(t *testing.T, pool *pgxpool.Pool) {
				execute(t, pool, "ALTER DATABASE this SET synchronous_commit = off")
			},
			about: "durability",
			want:  []string{"✗ ", "synchronous_commit off: a crash may take back orders whose cards were charged → turn it on"},
		},
		"its sessions may hang for good": {
			setting: "lock_timeout=0",
			about:   "sessions",
			want:    []string{"✗ ", "the database session has no lock_timeout", "ALTER ROLE"},
		},
		"its clock is five minutes ahead": {
			prepare: func(t *testing.T, pool *pgxpool.Pool) {
				lie(t, pool, "clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT pg_catalog.clock_timestamp() + interval '5 minutes' $$")
			},
			about: "clock",
			want:  []string{"✗ ", "the database's is 5m", " ahead of this machine's → run a time service"},
		},
		"its clock is half a minute behind": {
			prepare: func(t *testing.T, pool *pgxpool.Pool) {
				lie(t, pool, "clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT pg_catalog.clock_timestamp() - interval '30 seconds' $$")
			},
			about: "clock",
			want:  []string{"! ", "s behind this machine's → run a time service"},
		},
		"keys wait": {
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
			about: "keys",
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
			e := patientEnvironment(t, pool)
			e.Database.URL = withSetting(e.Database.URL, test.setting)
			lines := examine(t, e, patient)
			for _, part := range test.want {
				require.Contains(t, lines[test.about], part)
			}
			require.Regexp(t, "^✓ ", lines["stripe"], "the others are looked at all the same")
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

func TestExamine_aDatabaseWithoutTheSchema(t *testing.T) {
	t.Parallel()
	lines := examine(t, patientEnvironment(t, dbtest.Empty(t)), patient)
	require.Contains(t, lines["migrations"], "✗ ")
	require.Contains(t, lines["migrations"], "the database schema is out of date")
	require.Contains(t, lines["migrations"], "→ orders migrate up")
}

func TestExamine_noDatabase(t *testing.T) {
	t.Parallel()
	e := patientEnvironment(t, dbtest.New(t))
	e.Database.URL = boot.Secret("postgres://shop:canary@" + nobody(t) + "/orders")
	lines := examine(t, e, patient)
	require.Contains(t, lines["database"], "✗ ")
	require.Contains(t, lines["database"], "connection refused")
	require.Contains(t, lines["database"], "→ start it, let this machine and this role in, or correct DATABASE_URL")
	for _, about := range []string{"durability", "pooler", "sessions", "migrations", "clock", "keys"} {
		require.Contains(t, lines[about], "not looked at, for there is no connection")
	}
	require.Regexp(t, "^✓ ", lines["mail"])
}

// A partner that takes the connection and says nothing holds nobody up for longer
// than the limit.
func TestExamine_nobodySaysAnything(t *testing.T) {
	t.Parallel()
	e := patientEnvironment(t, dbtest.New(t))
	silent := silence(t)
	e.Database.URL = boot.Secret("postgres://shop:canary@" + silent + "/orders?sslmode=disable")
	e.Stripe.APIBase = "http://" + silent
	e.Mail.SMTPURL = boot.Secret("smtp://shop:canary@" + silent)
	begin := time.Now()
	lines := examine(t, e, 300*time.Millisecond)
	require.Less(t, time.Since(begin), patient/2)
	for _, about := range []string{"database", "stripe", "mail"} {
		require.Contains(t, lines[about], "✗ ", about)
	}
}

// Ids are never the same in two lines, so an examination is the same each time.
func TestExamine_keepsItsOrder(t *testing.T) {
	t.Parallel()
	e := &doctor.Environment{}
	e.Database.URL = "postgres://127.0.0.1:1/" + boot.Secret(uuid.NewString())
	e.Stripe = boot.Stripe{SecretKey: "sk_test_canary", APIBase: "http://" + nobody(t)}
	e.Mail.SMTPURL = boot.Secret("smtp://" + nobody(t))
	var order []string
	for _, finding := range doctor.Examine(t.Context(), doctor.Examination{Environment: e, Limit: patient}) {
		order = append(order, finding.About)
	}
	require.Equal(t, []string{
		"configuration", "database", "durability", "pooler", "sessions", "migrations", "clock", "keys",
		"stripe key", "stripe", "stripe clock", "webhook", "mail",
	}, order)
}
