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
	urlParts = regexp.MustCompile(`^postgres(?:ql)?://([^/?@]*@)?([^/?@]*)(?:/[^/?@]*)?(?:\?([^@]*))?$`) // the user with the password, the hosts and the parameters
	hostList = regexp.MustCompile(`^((\[[\w:.%-]+\]|[\w.%-]*)(:\d*)?(,|$))*$`)
	// clearer names the parameters that two texts of the driver do not name.
	clearer = strings.NewReplacer("invalid connect_timeout", "connect_timeout is not a number of seconds",
		"unable to add CA to cert pool", "sslrootcert has no certificate in PEM format")
)

const (
	notURL     = "is not a URL such as postgres://user:pass@host:5432/orders (its value is not shown)"
	notEncoded = "has a parameter that is not name=value, or a special character that is not percent-encoded, so its parts cannot be told apart: " +
		"write @ as %40, / as %2F, ? as %3F, = as %3D and % as %25 in user, password and parameters (its value is not shown)"
)

// parse returns the configuration of the pool. Its error shows only what was certainly parsed.
func (d *Database) parse() (*pgxpool.Config, error) {
	value := string(d.DatabaseURL)
	if err := checkURL(value); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(value)
	if wrong, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		wrong.ConnString = ""
		text := strings.TrimPrefix(wrong.Error(), "cannot parse ``: ")
		if strings.HasPrefix(text, "failed to parse as URL") {
			text = notEncoded
		}
		return nil, errors.New(clearer.Replace(text))
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

// checkURL rejects a URL whose parts cannot be told apart, or that lacks what a template should have
// filled in. The driver would accept a password with an @ or a /, and take a part of it for the host, which
// is then logged and resolved, or a part of a password with an & for a parameter, which the server shows.
func checkURL(value string) error {
	if !strings.HasPrefix(value, "postgres://") && !strings.HasPrefix(value, "postgresql://") {
		return errors.New(notURL)
	}
	parts := urlParts.FindStringSubmatch(value)
	if parts == nil {
		return errors.New(notEncoded)
	}
	parameters, _ := url.ParseQuery(parts[3]) // the driver rejects a wrong one
	if file := parameters.Get("passfile"); file != "" && !strings.Contains(parts[1], ":") {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("the file of passwords cannot be read: %w", err)
		}
	}
	switch {
	case strings.HasPrefix(parts[1], "@"), strings.HasPrefix(parts[1], ":"):
		return errors.New("names no user before the @")
	case parameters.Has("password"), parameters.Has("sslpassword"):
		return errors.New("has a password in its parameters: write it before the @ (it is not shown)")
	case !hostList.MatchString(parts[2]):
		return errors.New("has a host that is neither a name nor an address, a port that is no number, or an IPv6 address that is not between [ and ] (it is not shown)")
	case (parts[2] == "" || parts[2][0] == ':') && !parameters.Has("host"):
		return errors.New("names no host; expected postgres://user:pass@host:5432/orders, or ?host= with the folder of a socket")
	}
	return nil
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
