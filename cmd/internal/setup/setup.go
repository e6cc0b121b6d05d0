package setup

import (
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
	pool, err := connect(ctx, d, logger, postgres.Configure)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(postgres.CheckSession(ctx, pool), CheckSchema(ctx, pool)); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

const authPoolSize = 2 // see [accounts.NewAuthenticator]

// AuthPool returns a small pool for requests whose credentials are not verified yet (R25, bounded outsiders).
func AuthPool(ctx context.Context, main *pgxpool.Pool) (*pgxpool.Pool, error) {
	config := main.Config()
	config.MaxConns, config.MinConns, config.MinIdleConns = authPoolSize, 0, 0
	return pgxpool.NewWithConfig(ctx, config)
}

func connect(ctx context.Context, d Database, logger *slog.Logger, configure func(*pgxpool.Config)) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(string(d.DatabaseURL))
	if err != nil {
		return nil, errors.New("DATABASE_URL cannot be parsed") // the driver's error shows the password
	}
	if !strings.Contains(string(d.DatabaseURL), "pool_max_conns") {
		config.MaxConns = poolSize
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	configure(config)
	logger.InfoContext(ctx, "connecting to the database", "host", config.ConnConfig.Host, "database", config.ConnConfig.Database)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to the database (DATABASE_URL): %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		if strings.Contains(err.Error(), "startup parameter") { // PgBouncer's text, which names it
			err = fmt.Errorf("%w: set it for the role (ALTER ROLE … SET), and give it an empty value in DATABASE_URL (&lock_timeout=)", err)
		}
		return nil, fmt.Errorf("connect to the database (DATABASE_URL): %w", err)
	}
	return pool, nil
}

// CheckSchema returns an error if a migration is not applied.
func CheckSchema(ctx context.Context, pool *pgxpool.Pool) error {
	pending, err := migrations.Pending(ctx, pool)
	if err != nil || len(pending) == 0 {
		return err
	}
	var path string
	var hidden bool
	err = pool.QueryRow(ctx, `
SELECT current_setting('search_path'),
       current_schema() IS NULL OR EXISTS (SELECT FROM pg_class WHERE relname = 'idempotency_keys')
                               AND to_regclass('idempotency_keys') IS NULL`).Scan(&path, &hidden)
	switch {
	case err != nil:
		return fmt.Errorf("check search_path: %w", err)
	case hidden:
		return fmt.Errorf("search_path (%s) names no schema that has the tables and that the role may use: "+
			"set it for the role (ALTER ROLE … SET search_path) or grant USAGE", path)
	default:
		return fmt.Errorf("the database schema is out of date: run `orders migrate up` (missing: %s)", strings.Join(pending, ", "))
	}
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
               ('discrepancies', 'SELECT, INSERT, UPDATE'),
               ('expired_keys', 'SELECT'),
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

// WithMigrator connects without a pooler. Migrations have no statement timeout, and a short
// lock_timeout, because other sessions queue behind them.
func WithMigrator(ctx context.Context, d Database, logger *slog.Logger, run func(*migrations.Migrator) error) error {
	pool, err := connect(ctx, d, logger, func(config *pgxpool.Config) {
		params := config.ConnConfig.RuntimeParams
		params["lock_timeout"] = "5000"
		params["statement_timeout"], params["idle_in_transaction_session_timeout"] = "0", "0"
	})
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

// Mailer returns the mailer of the receipts, and tries it. Without SMTP_URL, they are files
// in RECEIPTS_DIR.
func (m *Mail) Mailer(ctx context.Context, logger *slog.Logger) (receipts.Mailer, error) {
	if m.SMTPURL != "" {
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
	mailer, err := receipts.NewFiles(m.ReceiptsDir)
	if err != nil {
		return nil, fmt.Errorf("RECEIPTS_DIR: %w (set SMTP_URL to send receipts by mail instead)", err)
	}
	logger.Info("receipts are written as .eml files, because SMTP_URL is not set", "folder", m.ReceiptsDir)
	return mailer, nil
}
