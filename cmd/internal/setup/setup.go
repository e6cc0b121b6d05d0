package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations"
	"example.com/orders-api/payments"
	"example.com/orders-api/receipts"
)

// Logger returns a logger that writes to w.
func (l *Log) Logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: l.Level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// poolSize is the default of pool_max_conns. No provider call holds a connection.
const poolSize = 10

// connectTimeout bounds an attempt to connect to one host, which otherwise can take minutes. It is
// shorter than the timeout of a lookup of an API key, so that the next host is reached in time.
const connectTimeout = 3 * time.Second

// Pool connects to the database and checks the sessions' timeouts (R21, session timeouts) and the migrations.
func Pool(ctx context.Context, d Database, logger *slog.Logger) (*pgxpool.Pool, error) {
	return connect(ctx, d, logger, postgres.Configure, func(pool *pgxpool.Pool) error {
		if err := migrations.CheckPath(ctx, pool, false); err != nil {
			return err
		}
		return CheckSchema(ctx, pool)
	})
}

// connect connects all commands, and checks the sessions.
func connect(
	ctx context.Context, d Database, logger *slog.Logger, configure func(*pgxpool.Config), check func(*pgxpool.Pool) error,
) (*pgxpool.Pool, error) {
	config, err := d.parse()
	if err != nil {
		return nil, fmt.Errorf("DATABASE_URL: %w", err)
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	configure(config)
	logger.InfoContext(ctx, "connecting to the database",
		"host", config.ConnConfig.Host, "database", config.ConnConfig.Database, "user", config.ConnConfig.User)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err == nil {
		if err = pool.Ping(ctx); err == nil {
			if err = errors.Join(postgres.CheckSession(ctx, pool), check(pool)); err == nil {
				return pool, nil
			}
			pool.Close()
			return nil, err
		}
		pool.Close()
	}
	return nil, fmt.Errorf("connect to the database (%s): %w", strings.Join(append([]string{"DATABASE_URL"}, driverVariables()...), ", "), d.explain(err))
}

// CheckSchema returns an error if a migration is not applied.
func CheckSchema(ctx context.Context, pool *pgxpool.Pool) error {
	pending, err := migrations.Pending(ctx, pool)
	if err == nil && len(pending) > 0 {
		err = cmp.Or(migrations.CheckPath(ctx, pool, false),
			fmt.Errorf("the database schema is out of date: run `orders migrate up` (missing: %s)", strings.Join(pending, ", ")))
	}
	return err
}

// CheckServing returns an error if a migration is not applied, or the role lacks a privilege
// that orders, refunds, webhooks and the metrics need (R30, ready to take an order).
func CheckServing(ctx context.Context, pool *pgxpool.Pool) error {
	if err := CheckSchema(ctx, pool); err != nil {
		return err
	}
	missing, err := postgres.Collect(ctx, pool, "check privileges", pgx.RowTo[string], `
SELECT privilege || ' ON ' || name
  FROM (VALUES ('accounts', 'SELECT'),
               ('api_keys', 'SELECT'),
               ('audit_records', 'INSERT'),
               ('idempotency_keys', 'SELECT, INSERT, UPDATE'),
               ('orders', 'SELECT, INSERT, UPDATE'),
               ('provider_event_place', 'SELECT'),
               ('provider_events', 'SELECT, INSERT'),
               ('refunds', 'SELECT, INSERT, UPDATE'),
               ('staged_jobs', 'SELECT, INSERT, UPDATE, DELETE')) AS needed (name, privileges),
       string_to_table(privileges, ', ') AS privilege
 WHERE has_table_privilege(to_regclass(name), privilege) IS NOT TRUE
 ORDER BY name, privilege`)
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("the role of DATABASE_URL lacks %s: grant it (deploy/roles.sql)", strings.Join(missing, ", "))
	}
	return err
}

// WarnOfLimit logs that the server permits fewer sessions than the process opens.
// Behind a pooler, it cannot know.
func WarnOfLimit(ctx context.Context, pool *pgxpool.Pool, logger *slog.Logger) {
	var limit string
	var allowed int32
	needed := pool.Config().MaxConns + 1 // of the monitor
	err := pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `
SELECT name,
       allowed - used + $2
  FROM pg_roles AS r
  JOIN pg_database AS d ON datname = current_database()
 CROSS JOIN LATERAL (VALUES
           ('CONNECTION LIMIT of the role', nullif(rolconnlimit, -1), (SELECT count(*) FROM pg_stat_activity WHERE usesysid = r.oid)),
           ('CONNECTION LIMIT of the database', nullif(datconnlimit, -1), (SELECT count(*) FROM pg_stat_activity WHERE datid = d.oid)),
           ('max_connections',
            (SELECT sum(setting::integer * CASE name WHEN 'max_connections' THEN 1 ELSE -1 END)
               FROM pg_settings
              WHERE name IN ('max_connections', 'superuser_reserved_connections', 'reserved_connections')),
            (SELECT count(*) FROM pg_stat_activity WHERE datid IS NOT NULL))
       ) AS limits (name, allowed, used)
 WHERE rolname = session_user
   AND NOT rolsuper
   AND pg_backend_pid() = $1
   AND allowed IS NOT NULL
 ORDER BY 2
 LIMIT 1`, conn.Conn().PgConn().PID(), pool.Stat().TotalConns()).Scan(&limit, &allowed)
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows), ctx.Err() != nil:
	case err != nil:
		logger.WarnContext(ctx, "the limits of sessions cannot be read", "error", err)
	case allowed < needed:
		logger.WarnContext(ctx, "the database permits fewer sessions than this process opens, so requests wait for each other: "+
			"raise the limit, or lower pool_max_conns in DATABASE_URL", "limit", limit, "permitted", allowed, "needed", needed)
	}
}

// WarnOfLoss logs the settings with which a crash of the database server can lose orders whose
// cards were charged.
func WarnOfLoss(ctx context.Context, pool *pgxpool.Pool, logger *slog.Logger) error {
	off, err := postgres.Collect(ctx, pool, "check the durability of the database", pgx.RowTo[string], `
SELECT name
  FROM pg_settings
 WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit')
   AND setting = 'off'`)
	if len(off) > 0 {
		logger.WarnContext(ctx, "a crash of the database server can lose orders whose cards were charged: turn these settings on",
			"off", strings.Join(off, ", "))
	}
	return err
}

// WithMigrator connects as [Pool] does, but an interrupted migration is cancelled at the server, too.
func WithMigrator(ctx context.Context, d Database, logger *slog.Logger, run func(*migrations.Migrator) error) error {
	pool, err := connect(ctx, d, logger, func(config *pgxpool.Config) {
		postgres.Configure(config)
		config.BeforeConnect = nil
		config.MaxConns = max(config.MaxConns, 2) // one reports what the other waits for
	}, func(pool *pgxpool.Pool) error { return migrations.CheckPath(ctx, pool, true) })
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := migrations.New(pool, logger)
	if err != nil {
		return err
	}
	defer func() { _ = migrator.Close() }()
	return run(migrator)
}

// ProviderTransport returns a transport that uses the proxy of HTTPS_PROXY.
func ProviderTransport() *http.Transport {
	transport := payments.NewTransport()
	transport.Proxy = http.ProxyFromEnvironment
	return transport
}

// tryTimeout bounds the tries of the provider and of the mail server at start.
const tryTimeout = 5 * time.Second

// tried returns the error of a setting that can never work, and logs that of a service that may
// only be unavailable.
func tried(ctx context.Context, logger *slog.Logger, setting string, never bool, err error) error {
	if never {
		return fmt.Errorf("%s: %w", setting, err)
	}
	if err != nil {
		logger.WarnContext(ctx, setting+": not available, and tried again when it is needed", "error", err)
	}
	return nil
}

// TryProvider reads from the provider with the secret key.
func TryProvider(ctx context.Context, client *payments.Client, logger *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	rejected, err := client.Check(ctx)
	return tried(ctx, logger, "STRIPE_SECRET_KEY", rejected, err)
}

// WarnOfProvider logs what the key or its account lacks, which would otherwise show at the first order,
// or at the first dispute.
func WarnOfProvider(ctx context.Context, client *payments.Client, logger *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	for _, lack := range client.Lacks(ctx) {
		logger.WarnContext(ctx, "STRIPE_SECRET_KEY: "+lack)
	}
}

// Mailer returns the mailer of SMTP_URL, and tries it.
func (m *Mail) Mailer(ctx context.Context, logger *slog.Logger) (receipts.Mailer, error) {
	host, _ := os.Hostname()
	mailer, err := receipts.NewSMTP(string(m.SMTPURL), m.HelloName(host))
	if err != nil {
		return nil, err
	}
	logger.Info("receipts are sent by mail", "server", mailer.String())
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	err = mailer.Check(ctx)
	return mailer, tried(ctx, logger, "SMTP_URL", errors.Is(err, receipts.ErrCredentials), err)
}
