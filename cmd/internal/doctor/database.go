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

// minServerVersion is the oldest version of PostgreSQL that the tests run on, as
// server_version_num.
const minServerVersion = 150_000

// checkDatabase connects like every command and runs the checks of the database.
func (c Checker) checkDatabase(ctx context.Context, logger *slog.Logger) []Result {
	const name = "database"
	checks := []struct {
		name string
		run  func(context.Context, *pgxpool.Pool) Result
	}{
		{name, checkServer},
		{"durability", checkDurability},
		{"pooler", checkPooler},
		{"sessions", checkSessions},
		{"migrations", checkMigrations},
		{"clock", checkClock},
		{"keys", func(ctx context.Context, pool *pgxpool.Pool) Result { return c.checkKeys(ctx, pool, logger) }},
	}
	results := make([]Result, len(checks))
	reason := "DATABASE_URL is invalid"
	var pool *pgxpool.Pool
	if c.valid("DATABASE_URL") {
		reason = "there is no connection"
		results[0] = c.withTimeout(ctx, func(ctx context.Context) Result {
			var err error
			if pool, err = boot.Connect(ctx, c.Environment.Database, logger); err != nil {
				return Result{Failure, name, err.Error(), "start the server, grant access to this machine and role, or correct DATABASE_URL"}
			}
			return Result{}
		})
	}
	if pool != nil {
		defer pool.Close()
	}
	for i, check := range checks {
		switch {
		case pool != nil:
			results[i] = c.withTimeout(ctx, func(ctx context.Context) Result { return check.run(ctx, pool) })
		case results[i].Severity == OK:
			results[i] = skipped(check.name, reason)
		}
	}
	return results
}

// queryFailed is the result of a check whose query failed.
func queryFailed(check string, err error) Result {
	return Result{Failure, check, "the query failed: " + err.Error(), "grant the role access to its own tables, and try again"}
}

func checkServer(ctx context.Context, pool *pgxpool.Pool) Result {
	const name = "database"
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
		return queryFailed(name, err)
	case number < minServerVersion:
		return Result{Failure, name, "PostgreSQL " + version + " is too old", "upgrade it to 15 or later"}
	case standby:
		return Result{
			Failure, name, "PostgreSQL " + version + " is a standby, which is read-only",
			"name the primary in DATABASE_URL, or all hosts with target_session_attrs=read-write",
		}
	case readOnly:
		return Result{
			Failure, name, "PostgreSQL " + version + " opens sessions read-only",
			"ALTER DATABASE or ALTER ROLE … RESET default_transaction_read_only",
		}
	}
	config := pool.Config().ConnConfig
	return ok(name, "PostgreSQL %s, a primary: database %s at %s", version, config.Database, config.Host)
}

// checkDurability checks the settings without which a crash can lose a committed
// transaction, and with it an order whose card was charged.
func checkDurability(ctx context.Context, pool *pgxpool.Pool) Result {
	const name = "durability"
	rows, err := pool.Query(ctx, `
SELECT name
  FROM pg_settings
 WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit')
   AND setting = 'off'
 ORDER BY name`)
	if err != nil {
		return queryFailed(name, err)
	}
	off, err := pgx.CollectRows(rows, pgx.RowTo[string])
	switch {
	case err != nil:
		return queryFailed(name, err)
	case len(off) > 0:
		return Result{
			Failure, name, strings.Join(off, ", ") + " off: a crash may lose orders whose cards were charged",
			"turn it on in postgresql.conf, and for the database and the role",
		}
	}
	return ok(name, "fsync, full_page_writes and synchronous_commit are on")
}

func checkPooler(ctx context.Context, pool *pgxpool.Pool) Result {
	const name = "pooler"
	pooled, err := boot.UsesTransactionPooling(ctx, pool)
	switch {
	case err != nil:
		return Result{Failure, name, err.Error(), "docs/scaling.md has a working configuration"}
	case pooled:
		return ok(name, "transaction pooling, with a working configuration; orders migrate needs a direct connection")
	}
	return ok(name, "no transaction pooling")
}

func checkSessions(ctx context.Context, pool *pgxpool.Pool) Result {
	const name = "sessions"
	if err := postgres.CheckSession(ctx, pool); err != nil {
		return Result{Failure, name, err.Error(), "docs/scaling.md says how to set them behind a pooler"}
	}
	return ok(name, "lock_timeout, statement_timeout and idle_in_transaction_session_timeout are set")
}

func checkMigrations(ctx context.Context, pool *pgxpool.Pool) Result {
	const name = "migrations"
	migrator, err := migrations.New(pool, nil)
	if err != nil {
		return queryFailed(name, err)
	}
	defer func() { _ = migrator.Close() }()
	err = migrator.Check(ctx)
	if errors.Is(err, migrations.ErrOutdated) {
		return Result{Failure, name, err.Error(), "orders migrate up"}
	}
	newer := int64(0)
	if err == nil {
		newer, err = migrator.Newer(ctx)
	}
	switch {
	case err != nil:
		return queryFailed(name, err)
	case newer > 0:
		return Result{
			Warning, name, fmt.Sprintf("the database is at version %d, which a newer program has applied", newer),
			"run the newer program, unless a deployment is in progress; or check DATABASE_URL",
		}
	default:
		return ok(name, "all applied")
	}
}

// checkClock compares the database's clock with this machine's. Leases do not depend
// on this machine's clock (R8). Logs, expiry times and webhook signatures do.
func checkClock(ctx context.Context, pool *pgxpool.Pool) Result {
	const name = "clock"
	var ahead, uncertainty time.Duration
	for i := range 3 { // the fastest response has the smallest uncertainty
		var databaseTime time.Time
		sent := time.Now()
		if err := pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&databaseTime); err != nil {
			return queryFailed(name, err)
		}
		half := time.Since(sent) / 2
		if i == 0 || half < uncertainty {
			ahead, uncertainty = databaseTime.Sub(sent.Add(half)), half
		}
	}
	return compareClocks(name, "the database's clock", ahead, uncertainty)
}

// Limits for the difference of two clocks. A clock that is synchronised over the
// network is never off by two seconds. At five minutes, webhooks are rejected.
const (
	clockWarning = 2 * time.Second
	clockFailure = time.Minute
)

func compareClocks(check, clock string, ahead, uncertainty time.Duration) Result {
	difference := ahead.Abs() - uncertainty
	direction := "ahead of"
	if ahead < 0 {
		direction = "behind"
	}
	message := fmt.Sprintf("%s is %s %s this machine's", clock, ahead.Abs().Round(time.Second), direction)
	const remedy = "run a time service on both, as in timedatectl set-ntp true"
	switch {
	case difference >= clockFailure:
		return Result{Failure, check, message, remedy}
	case difference >= clockWarning:
		return Result{Warning, check, message, remedy}
	}
	return ok(check, "%s is within two seconds of this machine's", clock)
}
