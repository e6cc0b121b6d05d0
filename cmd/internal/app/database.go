package app

import (
	"errors"
	"fmt"
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
	for _, name := range notOfDriver {
		p.check(os.Getenv(name) == "", name, "is not read by the driver of this program, so it has no effect; unset it")
	}
	for _, err := d.parse(); err != nil; {
		name, next := d.cause(err)
		p.add(name, "%v", err)
		err = next
	}
}

// cause returns the variable without which the error is another one, and that one. It unsets the variable.
func (d *Database) cause(err error) (name string, next error) {
	for _, name := range driverVariables() {
		value := os.Getenv(name)
		_ = os.Unsetenv(name)
		if _, next := d.parse(); next == nil || next.Error() != err.Error() {
			return name, next
		}
		_ = os.Setenv(name, value)
	}
	return "DATABASE_URL", nil
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
	urlParts      = regexp.MustCompile(`^postgres(?:ql)?://([^/?@]*@)?([^/?@]*)(?:[/?][^@]*)?$`) // the user with the password, and the hosts
	hostList      = regexp.MustCompile(`^((\[[\w:.%-]+\]|[\w.%-]*)(:[^:,]*)?(,|$))*$`)
	firstKeyword  = regexp.MustCompile(`^\s*\w+\s*=`)
	namesHost     = regexp.MustCompile(`(?:^|[?&\s])(?:host|service)\s*=`)
	passwordFile  = regexp.MustCompile(`(?:^|[?&\s])passfile\s*=\s*(?:([^&\s%'\\]+)(?:[&\s]|$))?`) // "" if it is encoded
)

const (
	notURL = "is neither a URL such as postgres://user:pass@host:5432/orders nor pairs such as host=db dbname=orders (its value is not shown)"

	notEncoded = "has a special character that is not percent-encoded, so its parts cannot be told apart: " +
		"write @ as %40, / as %2F, ? as %3F and % as %25 in user, password and parameters (its value is not shown)"
)

// clearer has our texts instead of those of the driver that name no cause, or may show a part of the
// password. The first that matches counts.
var clearer = [][2]string{
	{`separator "="`, "has a parameter that is not name=value, with another = written as %3D (it is not shown)"},
	{"failed to parse as URL", notEncoded},
	{"failed to parse as keyword", notURL},
	{"unable to add CA to cert pool", "sslrootcert has no certificate in PEM format"},
}

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
		for _, texts := range clearer {
			if strings.Contains(text, texts[0]) {
				return nil, errors.New(texts[1])
			}
		}
		return nil, errors.New(strings.Replace(text, "invalid connect_timeout", "connect_timeout is not a number of seconds", 1))
	}
	if err != nil {
		return nil, err
	}
	if !strings.Contains(value, "pool_max_conns") {
		config.MaxConns = poolSize
	}
	passfile := os.Getenv("PGPASSFILE")
	if named := passwordFile.FindStringSubmatch(value); named != nil {
		passfile = named[1]
	}
	if passfile != "" && config.ConnConfig.Password == "" {
		if _, err := os.Stat(passfile); err != nil {
			return nil, fmt.Errorf("the file of passwords cannot be read: %w", err)
		}
	}
	if !slices.Contains([]string{"", "postgres", "direct"}, config.ConnConfig.SSLNegotiation) {
		return nil, errors.New("sslnegotiation is neither postgres nor direct")
	}
	switch config.ConnConfig.DefaultQueryExecMode {
	case pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol:
		return nil, errors.New("its default_query_exec_mode infers parameter types and cannot encode an order; " +
			"use cache_describe behind a pooler, and otherwise the default")
	}
	return config, nil
}

// checkURL rejects a URL whose parts cannot be told apart, or that lacks what a template should have
// filled in.
func checkURL(value string) error {
	var user, hosts string
	switch parts := urlParts.FindStringSubmatch(value); {
	case parts != nil:
		user, hosts = parts[1], parts[2]
	case strings.HasPrefix(value, "postgres://"), strings.HasPrefix(value, "postgresql://"):
		return errors.New(notEncoded)
	case !firstKeyword.MatchString(value):
		return errors.New(notURL)
	}
	switch {
	case strings.HasPrefix(user, "@"), strings.HasPrefix(user, ":"):
		return errors.New("names no user before the @")
	case !hostList.MatchString(hosts):
		return errors.New("has a host that is neither a name nor an address, or an IPv6 address that is not between [ and ] (it is not shown)")
	case (hosts == "" || hosts[0] == ':') && !namesHost.MatchString(value) && os.Getenv("PGHOST")+os.Getenv("PGSERVICE") == "":
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
