package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations"
)

// poolSize is the default of pool_max_conns. No provider call holds a connection.
const poolSize = 10

// connectTimeout bounds an attempt to connect to one host, which otherwise can take minutes. It is
// shorter than the timeout of a lookup of an API key, so that the next host is reached in time.
const connectTimeout = 3 * time.Second

// Pool connects to the database and checks the sessions' timeouts (R21, session timeouts) and the migrations.
func Pool(ctx context.Context, d Database, logger *slog.Logger) (*pgxpool.Pool, error) {
	return connect(ctx, d, logger, false)
}

// Migrator connects as [Pool] does, to a database that may lack migrations. done disconnects.
func Migrator(ctx context.Context, d Database, logger *slog.Logger) (m *migrations.Migrator, done func(), err error) {
	pool, err := connect(ctx, d, logger, true)
	if err != nil {
		return nil, nil, err
	}
	if m, err = migrations.New(pool, logger); err != nil {
		pool.Close()
		return nil, nil, err
	}
	return m, func() {
		_ = m.Close()
		pool.Close()
	}, nil
}

func connect(ctx context.Context, d Database, logger *slog.Logger, forMigration bool) (*pgxpool.Pool, error) {
	config, err := d.parse()
	if err != nil {
		return nil, fmt.Errorf("DATABASE_URL: %w", err)
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	postgres.Configure(config)
	logger.InfoContext(ctx, "connecting to the database",
		"host", config.ConnConfig.Host, "database", config.ConnConfig.Database, "user", config.ConnConfig.User)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("DATABASE_URL: %w", err)
	}
	if err = pool.Ping(ctx); err != nil {
		names := append([]string{"DATABASE_URL"}, driverVariables()...)
		err = fmt.Errorf("connect to the database (%s): %w", strings.Join(names, ", "), d.explain(err))
	} else if err = errors.Join(postgres.CheckSession(ctx, pool), migrations.CheckPath(ctx, pool, forMigration)); err == nil && !forMigration {
		err = CheckSchema(ctx, pool)
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// CheckSchema returns an error if a migration is not applied.
func CheckSchema(ctx context.Context, pool *pgxpool.Pool) error {
	pending, err := migrations.Pending(ctx, pool)
	if err == nil && len(pending) > 0 {
		err = fmt.Errorf("the database schema is out of date: run `orders migrate up` (missing: %s)", strings.Join(pending, ", "))
	}
	return err
}

// CheckServing returns an error if a migration is not applied, or the role lacks a privilege
// (R30, ready to take an order).
func CheckServing(ctx context.Context, pool *pgxpool.Pool) error {
	if err := CheckSchema(ctx, pool); err != nil {
		return err
	}
	missing, err := migrations.MissingPrivileges(ctx, pool)
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("the role of DATABASE_URL lacks %s: grant it (deploy/roles.sql)", strings.Join(missing, ", "))
	}
	return err
}

// WarnOfSettings logs the settings of the server with which its crash can lose orders whose cards were
// charged, and a limit of sessions below what the process opens. Behind a pooler, it cannot know the limit.
func WarnOfSettings(ctx context.Context, pool *pgxpool.Pool, logger *slog.Logger) {
	off, _ := postgres.Collect(ctx, pool, "check the durability of the database", pgx.RowTo[string], `
SELECT name
  FROM pg_settings
 WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit')
   AND setting = 'off'`)
	if len(off) > 0 {
		logger.WarnContext(ctx, "a crash of the database server can lose orders whose cards were charged: turn these settings on",
			"off", strings.Join(off, ", "))
	}
	var limit string
	var permitted int32
	needed := pool.Config().MaxConns + 1 // of the monitor
	err := pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `
SELECT name,
       permitted
  FROM pg_roles
  JOIN pg_database ON datname = current_database()
 CROSS JOIN LATERAL (VALUES
           ('CONNECTION LIMIT of the role', nullif(rolconnlimit, -1)),
           ('CONNECTION LIMIT of the database', nullif(datconnlimit, -1)),
           ('max_connections', current_setting('max_connections')::integer
                               - current_setting('superuser_reserved_connections')::integer
                               - coalesce(current_setting('reserved_connections', true)::integer, 0))
       ) AS limits (name, permitted)
 WHERE rolname = session_user
   AND NOT rolsuper
   AND pg_backend_pid() = $1
   AND permitted < $2
 ORDER BY permitted
 LIMIT 1`, conn.Conn().PgConn().PID(), needed).Scan(&limit, &permitted)
	})
	if err == nil {
		logger.WarnContext(ctx, "the database permits fewer sessions than this process opens, so requests wait for each other: "+
			"raise the limit, or lower pool_max_conns in DATABASE_URL", "limit", limit, "permitted", permitted, "needed", needed)
	}
}
