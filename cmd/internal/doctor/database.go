package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations"
)

// oldest is the first version of PostgreSQL that the schema is tested on, as the
// server counts.
const oldest = 150_000

// database connects as every command does, and looks at what it finds.
func (e Examination) database(ctx context.Context, logger *slog.Logger) []Finding {
	const about = "database"
	checks := []struct {
		about string
		check func(context.Context, *pgxpool.Pool) Finding
	}{
		{about, checkServer},
		{"durability", checkDurability},
		{"pooler", checkPooler},
		{"sessions", checkSessions},
		{"migrations", checkMigrations},
		{"clock", checkClock},
		{"keys", func(ctx context.Context, pool *pgxpool.Pool) Finding { return e.checkKeys(ctx, pool, logger) }},
	}
	findings := make([]Finding, len(checks))
	because := "since DATABASE_URL is wrong"
	var pool *pgxpool.Pool
	if e.usable("DATABASE_URL") {
		because = "for there is no connection"
		findings[0] = e.bounded(ctx, func(ctx context.Context) Finding {
			var err error
			if pool, err = boot.Connect(ctx, e.Environment.Database, logger); err != nil {
				return Finding{Fault, about, err.Error(), "start it, let this machine and this role in, or correct DATABASE_URL"}
			}
			return Finding{}
		})
	}
	if pool != nil {
		defer pool.Close()
	}
	for i, c := range checks {
		switch {
		case pool != nil:
			findings[i] = e.bounded(ctx, func(ctx context.Context) Finding { return c.check(ctx, pool) })
		case findings[i].Verdict == Good:
			findings[i] = notLooked(c.about, because)
		}
	}
	return findings
}

// failed is about a check that the database did not let end.
func failed(about string, err error) Finding {
	return Finding{Fault, about, "could not be looked at: " + err.Error(), "see that the role may read its own tables, and try again"}
}

func checkServer(ctx context.Context, pool *pgxpool.Pool) Finding {
	const about = "database"
	var version string
	var number int
	var standby, readOnly bool
	err := pool.QueryRow(ctx, `
SELECT current_setting('server_version'),
       current_setting('server_version_num')::integer,
       pg_is_in_recovery(),
       current_setting('transaction_read_only') = 'on'`).Scan(&version, &number, &standby, &readOnly)
	switch {
	case err != nil:
		return failed(about, err)
	case number < oldest:
		return Finding{Fault, about, "PostgreSQL " + version + " is too old", "upgrade it to 15 or later"}
	case standby:
		return Finding{
			Fault, about, "PostgreSQL " + version + " is a standby, which takes no orders",
			"name the primary in DATABASE_URL, or all hosts with target_session_attrs=read-write",
		}
	case readOnly:
		return Finding{
			Fault, about, "PostgreSQL " + version + " opens sessions read-only",
			"ALTER DATABASE or ALTER ROLE … RESET default_transaction_read_only",
		}
	}
	c := pool.Config().ConnConfig
	return good(about, "PostgreSQL %s, a primary: database %s at %s", version, c.Database, c.Host)
}

// checkDurability looks for what makes a COMMIT something that a crash takes
// back. A lost order is one whose card was charged all the same.
func checkDurability(ctx context.Context, pool *pgxpool.Pool) Finding {
	const about = "durability"
	rows, err := pool.Query(ctx, `
SELECT name
  FROM pg_settings
 WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit')
   AND setting = 'off'
 ORDER BY name`)
	if err != nil {
		return failed(about, err)
	}
	off, err := pgx.CollectRows(rows, pgx.RowTo[string])
	switch {
	case err != nil:
		return failed(about, err)
	case len(off) > 0:
		return Finding{
			Fault, about, strings.Join(off, ", ") + " off: a crash may take back orders whose cards were charged",
			"turn it on in postgresql.conf, and for the database and the role",
		}
	}
	return good(about, "fsync, full_page_writes and synchronous_commit are on")
}

func checkPooler(ctx context.Context, pool *pgxpool.Pool) Finding {
	const about = "pooler"
	shared, err := boot.SharesSessions(ctx, pool)
	switch {
	case err != nil:
		return Finding{Fault, about, err.Error(), "docs/growing.md has a configuration that works"}
	case shared:
		return good(about, "one in between shares sessions, and is ready for our statements; orders migrate goes around it")
	}
	return good(about, "none that shares sessions")
}

func checkSessions(ctx context.Context, pool *pgxpool.Pool) Finding {
	const about = "sessions"
	if err := postgres.CheckSession(ctx, pool); err != nil {
		return Finding{Fault, about, err.Error(), "docs/growing.md says how a pooler passes them"}
	}
	return good(about, "have lock_timeout, statement_timeout and idle_in_transaction_session_timeout")
}

func checkMigrations(ctx context.Context, pool *pgxpool.Pool) Finding {
	const about = "migrations"
	switch err := boot.CheckSchema(ctx, pool); {
	case errors.Is(err, migrations.ErrOutdated):
		return Finding{Fault, about, err.Error(), "orders migrate up"}
	case err != nil:
		return failed(about, err)
	}
	return good(about, "all applied")
}

// checkClock compares this machine's clock with the database's. Leases do not
// depend on it (R8); logs, expiry times and the signatures of webhooks do.
func checkClock(ctx context.Context, pool *pgxpool.Pool) Finding {
	const about = "clock"
	var difference, uncertain time.Duration
	for i := range 3 { // the quickest answer tells best
		var theirs time.Time
		asked := time.Now()
		if err := pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&theirs); err != nil {
			return failed(about, err)
		}
		half := time.Since(asked) / 2
		if i == 0 || half < uncertain {
			difference, uncertain = theirs.Sub(asked.Add(half)), half
		}
	}
	return judgeClock(about, "the database's", difference, uncertain)
}

// How far clocks may be apart. The first is more than any machine is off whose
// clock is kept right by the network; at five minutes webhooks are refused.
const (
	clockWarning = 2 * time.Second
	clockFault   = time.Minute
)

func judgeClock(about, whose string, ahead, uncertain time.Duration) Finding {
	apart := ahead.Abs() - uncertain
	word := "ahead of"
	if ahead < 0 {
		word = "behind"
	}
	found := fmt.Sprintf("%s is %s %s this machine's", whose, ahead.Abs().Round(time.Second), word)
	const remedy = "run a time service on both, as in timedatectl set-ntp true"
	switch {
	case apart >= clockFault:
		return Finding{Fault, about, found, remedy}
	case apart >= clockWarning:
		return Finding{Warning, about, found, remedy}
	}
	return good(about, "%s is within two seconds of this machine's", whose)
}
