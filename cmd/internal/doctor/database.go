package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations"
)

// minServerVersion is the oldest version that the tests use, as server_version_num.
const minServerVersion = 150_000

// checkDatabase connects like every command.
func (c Checker) checkDatabase(ctx context.Context) []Result {
	var pool *pgxpool.Pool
	defer func() {
		if pool != nil {
			pool.Close()
		}
	}()
	connected := func(run func(context.Context, *pgxpool.Pool) Result) func(context.Context) Result {
		return func(ctx context.Context) Result {
			if pool == nil {
				return skipped("there is no connection")
			}
			return run(ctx, pool)
		}
	}
	return c.run(
		ctx, []string{"DATABASE_URL"},
		check{"database", func(ctx context.Context) Result {
			var err error
			if pool, err = boot.Connect(ctx, c.Environment.Database, slog.New(slog.DiscardHandler)); err != nil {
				return failure(err.Error(), "start the server, grant access to this machine and role, or correct DATABASE_URL")
			}
			return checkServer(ctx, pool)
		}},
		check{"durability", connected(checkDurability)},
		check{"pooler", connected(checkPooler)},
		check{"sessions", connected(checkSessions)},
		check{"migrations", connected(checkMigrations)},
		check{"clock", connected(checkClock)},
	)
}

func queryFailed(err error) Result {
	return failure("the query failed: "+err.Error(), "grant the role access to its own tables, and try again")
}

func checkServer(ctx context.Context, pool *pgxpool.Pool) Result {
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
		return queryFailed(err)
	case number < minServerVersion:
		return failure("PostgreSQL "+version+" is too old", "upgrade it to 15 or later")
	case standby:
		return failure("PostgreSQL "+version+" is a standby, which is read-only",
			"name the primary in DATABASE_URL, or all hosts with target_session_attrs=read-write")
	case readOnly:
		return failure("PostgreSQL "+version+" opens sessions read-only",
			"ALTER DATABASE or ALTER ROLE … RESET default_transaction_read_only")
	}
	config := pool.Config().ConnConfig
	return ok("PostgreSQL %s, a primary: database %s at %s", version, config.Database, config.Host)
}

// checkDurability checks the settings without which a crash can lose an order whose
// card was charged.
func checkDurability(ctx context.Context, pool *pgxpool.Pool) Result {
	var off string
	err := pool.QueryRow(ctx, `
SELECT coalesce(string_agg(name, ', ' ORDER BY name), '')
  FROM pg_settings
 WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit')
   AND setting = 'off'`).Scan(&off)
	switch {
	case err != nil:
		return queryFailed(err)
	case off != "":
		return failure(off+" off: a crash may lose orders whose cards were charged",
			"turn it on in postgresql.conf, and for the database and the role")
	}
	return ok("fsync, full_page_writes and synchronous_commit are on")
}

func checkPooler(ctx context.Context, pool *pgxpool.Pool) Result {
	pooled, err := boot.UsesTransactionPooling(ctx, pool)
	switch {
	case err != nil:
		return failure(err.Error(), "docs/scaling.md has a working configuration")
	case pooled:
		return ok("transaction pooling, with a working configuration; orders migrate needs a direct connection")
	}
	return ok("no transaction pooling")
}

func checkSessions(ctx context.Context, pool *pgxpool.Pool) Result {
	if err := postgres.CheckSession(ctx, pool); err != nil {
		return failure(err.Error(), "docs/scaling.md says how to set them behind a pooler")
	}
	return ok("lock_timeout, statement_timeout and idle_in_transaction_session_timeout are set")
}

func checkMigrations(ctx context.Context, pool *pgxpool.Pool) Result {
	if err := boot.CheckSchema(ctx, pool); err != nil {
		return failure(err.Error(), "orders migrate up")
	}
	migrator, err := migrations.New(pool, nil)
	if err != nil {
		return queryFailed(err)
	}
	defer func() { _ = migrator.Close() }()
	newer, err := migrator.Newer(ctx)
	switch {
	case err != nil:
		return queryFailed(err)
	case newer > 0:
		return warning(fmt.Sprintf("the database is at version %d, which a newer program has applied", newer),
			"run the newer program, unless a deployment is in progress; or check DATABASE_URL")
	}
	return ok("all applied")
}

func checkClock(ctx context.Context, pool *pgxpool.Pool) Result {
	var databaseTime time.Time
	sent := time.Now()
	if err := pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&databaseTime); err != nil {
		return queryFailed(err)
	}
	half := time.Since(sent) / 2
	return compareClocks("the database's clock", databaseTime.Sub(sent.Add(half)), half)
}
