package app

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

// Database has the connection string.
type Database struct {
	DatabaseURL Secret `envconfig:"DATABASE_URL"`
}

func (d *Database) validate(p *problems) {
	if d.DatabaseURL == "" {
		p.add("DATABASE_URL", "not set; expected postgres://user:pass@host:5432/orders. "+
			"docker compose up -d starts a database at postgres://orders:orders@127.0.0.1:5432/orders; "+
			"playground run needs none")
		return
	}
	for _, name := range driverVariables() {
		p.check(!slices.Contains(notOfDriver, name), name, "is not read by the driver of this program, so it has no effect; unset it")
	}
	_, err := d.parse()
	for err != nil {
		// The cause is the variable without which the error is another one.
		name, next := "DATABASE_URL", error(nil)
		for _, candidate := range driverVariables() {
			value := os.Getenv(candidate)
			_ = os.Unsetenv(candidate)
			if _, next = d.parse(); next == nil || next.Error() != err.Error() {
				name = candidate
				break
			}
			next = nil
			_ = os.Setenv(candidate, value)
		}
		p.add(name, "%v", err)
		err = next
	}
}

// driverVariables returns the variables of libpq that are set. The driver reads most of them.
func driverVariables() (names []string) {
	for _, setting := range os.Environ() {
		if name, _, _ := strings.Cut(setting, "="); libpqVariable.MatchString(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// notOfDriver are variables of libpq without which a connection would go elsewhere, or would be less
// safe than the operator believes.
var notOfDriver = []string{
	"PGHOSTADDR", "PGREQUIREPEER", "PGREQUIRESSL", "PGSSLCRL", "PGSSLCRLDIR", "PGSSLMINPROTOCOLVERSION", "PGSSLMAXPROTOCOLVERSION",
}

var (
	libpqVariable = regexp.MustCompile(`^PG(CONNECT_)?[A-Z]+$`)
	parameterName = regexp.MustCompile(`^[A-Za-z][\w.]*$`)
	hostName      = regexp.MustCompile(`^[\w.-]+$`)
	passwordFile  = regexp.MustCompile(`(?:^|[?&\s])passfile\s*=\s*([^&\s]*)`)
	firstKeyword  = regexp.MustCompile(`^\s*\w+\s*=`)
	namesHost     = regexp.MustCompile(`(?:^|[?&\s])(?:host|service)\s*=`)
	urlScheme     = regexp.MustCompile(`^postgres(?:ql)?://`)
)

const (
	notURL = "is neither a URL such as postgres://user:pass@host:5432/orders nor pairs such as host=db dbname=orders (its value is not shown)"

	notEncoded = "has a special character that is not percent-encoded, so its parts cannot be told apart: " +
		"write @ as %40, / as %2F, ? as %3F and % as %25 in user, password and parameters (its value is not shown)"
)

// parse returns the configuration of the pool. Its error is about DATABASE_URL or a variable of libpq, and
// shows only what was certainly parsed. The driver would accept a password with an @ or a /, and take a
// part of it for the host, which is then logged and resolved.
func (d *Database) parse() (*pgxpool.Config, error) {
	value := string(d.DatabaseURL)
	if err := checkURL(value); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(value)
	if wrong, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		wrong.ConnString = ""
		text := strings.TrimPrefix(wrong.Error(), "cannot parse ``: ")
		switch {
		case strings.Contains(text, `separator "="`):
			return nil, errors.New("has a parameter that is not name=value, with another = written as %3D (it is not shown)")
		case strings.Contains(text, `"]"`), strings.Contains(text, "IPv6"), strings.Contains(text, "unexpected character"):
			return nil, errors.New("has an IPv6 address that is not between [ and ]")
		case strings.HasPrefix(text, "failed to parse as URL"): // the rest may show a part of the password
			return nil, errors.New(notEncoded)
		case strings.HasPrefix(text, "failed to parse as keyword"):
			return nil, errors.New(notURL)
		}
		return nil, errors.New(strings.NewReplacer(
			"unable to add CA to cert pool", "sslrootcert has no certificate in PEM format",
			"invalid connect_timeout", "connect_timeout is not a number of seconds",
		).Replace(text))
	}
	if err != nil {
		return nil, err
	}
	plain, err := pgx.ParseConfig(value)
	if err != nil {
		return nil, err
	}
	if plain.RuntimeParams["pool_max_conns"] == "" {
		config.MaxConns = poolSize
	}
	for name := range config.ConnConfig.RuntimeParams {
		if !parameterName.MatchString(name) {
			return nil, errors.New(notURL)
		}
	}
	hosts := []string{config.ConnConfig.Host}
	for _, fallback := range config.ConnConfig.Fallbacks {
		hosts = append(hosts, fallback.Host)
	}
	for _, host := range hosts {
		_, err := netip.ParseAddr(host)
		if err != nil && !strings.HasPrefix(host, "/") && !hostName.MatchString(host) {
			return nil, errors.New("has a host that is neither a name nor an address nor a folder (it is not shown)")
		}
	}
	passfile := os.Getenv("PGPASSFILE")
	if named := passwordFile.FindStringSubmatch(value); named != nil {
		passfile = "" // percent-encoded perhaps
		if !strings.ContainsAny(named[1], `%'\`) {
			passfile = named[1]
		}
	}
	if passfile != "" && config.ConnConfig.Password == "" {
		if _, err := os.Stat(passfile); err != nil {
			return nil, fmt.Errorf("the file of passwords cannot be read: %w", err)
		}
	}
	if !slices.Contains([]string{"", "postgres", "direct"}, config.ConnConfig.SSLNegotiation) {
		return nil, errors.New("sslnegotiation is neither postgres nor direct")
	}
	if slices.Contains(inferring, config.ConnConfig.DefaultQueryExecMode) {
		return nil, errors.New("its default_query_exec_mode infers parameter types and cannot encode an order; " +
			"use cache_describe behind a pooler, and otherwise the default")
	}
	return config, nil
}

var inferring = []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol}

// checkURL rejects a URL whose parts cannot be told apart, or that lacks what a template should have
// filled in.
func checkURL(value string) error {
	scheme := urlScheme.FindString(value)
	user, rest, hasUser := strings.Cut(value[len(scheme):], "@")
	if !hasUser {
		user, rest = "", user
	}
	hostless := rest == "" || strings.ContainsAny(rest[:1], "/?:")
	if scheme == "" {
		user, rest, hasUser, hostless = "", "", false, true
	}
	switch {
	case scheme == "" && !firstKeyword.MatchString(value):
		return errors.New(notURL)
	case strings.ContainsAny(user, "/?") || strings.Contains(rest, "@"):
		return errors.New(notEncoded)
	case hasUser && (user == "" || user[0] == ':'):
		return errors.New("names no user before the @")
	case hostless && !namesHost.MatchString(value) && os.Getenv("PGHOST")+os.Getenv("PGSERVICE") == "":
		return errors.New("names no host; expected postgres://user:pass@host:5432/orders, or ?host= with the folder of a socket")
	}
	return nil
}

// explain hides the server's text about a wrong parameter if that could be a part of the password.
func (d *Database) explain(err error) error {
	state := postgres.SQLState(err)
	if (state == "42704" || state == "22023") && strings.Contains(string(d.DatabaseURL), "password") {
		return errors.New("the server rejects a parameter (it is not shown, because it may be a part of the password)")
	}
	if strings.Contains(err.Error(), "startup parameter") { // PgBouncer's text, which names it
		return fmt.Errorf("%w: set it for the role (ALTER ROLE … SET), and give it an empty value in DATABASE_URL (&lock_timeout=)", err)
	}
	return err
}
