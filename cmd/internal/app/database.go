package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations"
)

// Database has the connection string.
type Database struct {
	DatabaseURL Secret `envconfig:"DATABASE_URL"`
}

// validate rejects the variables of libpq, too: a part of them would change what DATABASE_URL says, and the
// driver ignores the others.
func (d *Database) validate(p *problems) {
	for _, setting := range os.Environ() {
		if name, value, _ := strings.Cut(setting, "="); libpqVariable.MatchString(name) {
			p.check(value == "", name, "is not read: write it as a parameter of DATABASE_URL, such as ?sslmode=verify-full, and unset it")
			_ = os.Unsetenv(name) // otherwise its fault would be reported as one of DATABASE_URL
		}
	}
	if d.DatabaseURL != "" {
		_, err := d.parse()
		p.check(err == nil, "DATABASE_URL", "%v", err)
	}
}

var (
	libpqVariable = regexp.MustCompile(`^PG(APPNAME|CHANNELBINDING|CLIENTENCODING|CONNECT_TIMEOUT|DATABASE|GSS\w+|HOST\w*|KRBSRVNAME|LOADBALANCEHOSTS|` +
		`(MIN|MAX)PROTOCOLVERSION|OPTIONS|PASS\w+|PORT|REQUIRE\w+|SERVICE\w*|SSL\w+|TARGETSESSIONATTRS|TZ|USER)$`)
	// urlForm accepts no URL in which a part of a password could be taken for a host, a database or a parameter,
	// because these are logged, resolved and sent. It has the hosts and the parameters.
	urlForm = regexp.MustCompile(`^postgres(?:ql)?://(?:[^:/?#@\s]+(?::[^/?#@\s]*)?@)?(` + host + `(?:,` + host + `)*)(?:/[^/?#@\s]*)?(?:\?([^#@\s]*))?$`)
)

const (
	host      = `(?:\[[\w:.%-]+\]|[\w.%-]*)(?::\d*)?`
	wrongForm = "is not a URL such as postgres://user:pass@host:5432/orders?sslmode=verify-full, with a host, no password among the parameters, " +
		"IPv6 addresses between [ and ], and %40 for @, %2F for /, %3F for ?, %23 for #, %3D for = and %25 for % in user, password and parameters (its value is not shown)"
)

// parse returns the configuration of the pool. Its error shows no secret.
func (d *Database) parse() (*pgxpool.Config, error) {
	value := string(d.DatabaseURL)
	parts := urlForm.FindStringSubmatch(value)
	if parts == nil {
		return nil, errors.New(wrongForm)
	}
	parameters, _ := url.ParseQuery(parts[2])           // the driver rejects a wrong one
	if file := parameters.Get("passfile"); file != "" { // the driver would ignore it, and the server reject the password
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("the file of passwords cannot be read: %w", err)
		}
	}
	hosts := parts[1] != "" && parts[1][0] != ':' || parameters.Has("host")
	if !hosts || parameters.Has("password") || parameters.Has("sslpassword") {
		return nil, errors.New(wrongForm)
	}
	config, err := pgxpool.ParseConfig(value)
	if wrong, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		wrong.ConnString = ""
		text := strings.TrimPrefix(wrong.Error(), "cannot parse ``: ")
		if strings.HasPrefix(text, "failed to parse as URL") {
			text = wrongForm
		}
		return nil, errors.New(text)
	}
	if err != nil {
		return nil, err
	}
	if !strings.Contains(value, "pool_max_conns") {
		config.MaxConns = poolSize
	}
	switch config.ConnConfig.DefaultQueryExecMode {
	case pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol:
		return nil, errors.New("its default_query_exec_mode infers parameter types and cannot encode an order; " +
			"use cache_describe behind a pooler, and otherwise the default")
	}
	return config, nil
}

// poolSize is the default of pool_max_conns. No provider call holds a connection.
const poolSize = 10

// connectTimeout bounds an attempt to connect to one host, which otherwise can take minutes. It is
// shorter than the timeout of a lookup of an API key, so that the next host is reached in time.
const connectTimeout = 3 * time.Second

// Pool connects to the database, and checks the sessions' timeouts (R21, session timeouts), the migrations and
// the role's privileges.
func Pool(ctx context.Context, d Database, logger *slog.Logger) (*pgxpool.Pool, error) {
	return connect(ctx, d, logger, false)
}

// Migrate connects as [Pool] does, to a database that may lack migrations, and calls do.
func Migrate(ctx context.Context, d Database, logger *slog.Logger, do func(*migrations.Migrator) error) error {
	pool, err := connect(ctx, d, logger, true)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := migrations.New(pool, logger)
	if err != nil {
		return err
	}
	return errors.Join(do(migrator), migrator.Close())
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
		err = fmt.Errorf("connect to the database (DATABASE_URL): %w", err)
		if strings.Contains(err.Error(), "startup parameter") { // PgBouncer's text, which names it
			err = fmt.Errorf("%w: set it for the role (ALTER ROLE … SET), and give it an empty value in DATABASE_URL (&lock_timeout=)", err)
		}
	} else if err = errors.Join(postgres.CheckSession(ctx, pool), migrations.CheckPath(ctx, pool, forMigration)); err == nil && !forMigration {
		err = checkSchema(ctx, pool)
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// checkSchema returns an error if a migration is not applied, or the role lacks a privilege
// (R30, ready to take an order).
func checkSchema(ctx context.Context, pool *pgxpool.Pool) error {
	pending, err := migrations.Pending(ctx, pool)
	if err == nil && len(pending) > 0 {
		err = fmt.Errorf("the database schema is out of date: run `orders migrate up` (missing: %s)", strings.Join(pending, ", "))
	}
	if err != nil {
		return err
	}
	missing, err := migrations.MissingPrivileges(ctx, pool)
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("the role of DATABASE_URL lacks %s: grant it (deploy/roles.sql)", strings.Join(missing, ", "))
	}
	return err
}

// WarnOfSettings logs the settings of the server with which its crash can lose orders whose cards were
// charged, and a limit of sessions below what the process opens.
func WarnOfSettings(ctx context.Context, pool *pgxpool.Pool, logger *slog.Logger) {
	needed := pool.Config().MaxConns + 1 // of the monitor
	found, _ := postgres.Collect(ctx, pool, "check the settings of the database", pgx.RowTo[string], `
SELECT name || ' = off: a crash of the server can lose orders whose cards were charged'
  FROM pg_settings
 WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit')
   AND setting = 'off'
 UNION ALL
SELECT format('CONNECTION LIMIT or max_connections permits %s sessions, less than the %s of this process, so requests wait for each other: '
              'raise it, or lower pool_max_conns in DATABASE_URL, unless a pooler shares the sessions', permitted, $1::integer)
  FROM (SELECT least(nullif(rolconnlimit, -1), nullif(datconnlimit, -1), current_setting('max_connections')::integer
                     - current_setting('superuser_reserved_connections')::integer) AS permitted
          FROM pg_roles
          JOIN pg_database ON datname = current_database()
         WHERE rolname = session_user
           AND NOT rolsuper) AS limits
 WHERE permitted < $1`, needed)
	for _, setting := range found {
		logger.WarnContext(ctx, "setting of the database", "setting", setting)
	}
}
