package app

import (
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/kelseyhightower/envconfig"
)

// Variables describes all variables of the environment.
//
//go:embed env.txt
var Variables string

// Config has all variables.
type Config struct {
	Database
	Stripe
	Mail
	Events
	Durations

	ListenAddr string     `envconfig:"LISTEN_ADDR" default:":8080"`
	AdminAddr  string     `envconfig:"ADMIN_ADDR" default:"127.0.0.1:8081"`
	LogLevel   slog.Level `envconfig:"LOG_LEVEL" default:"info"`
	LogFormat  string     `envconfig:"LOG_FORMAT" default:"text"`
}

// Load reads and checks all variables, of which some are required. The error names every invalid variable,
// and contains no secret. Space around a value is removed, because files such as Kubernetes secrets end
// with a line break. An empty variable counts as not set, except that it turns the admin listener off.
func Load(required ...string) (*Config, error) {
	p := new(problems)
	for name, instead := range removed {
		p.check(os.Getenv(name) == "", name, "was removed: %s", instead)
	}
	for _, name := range variableName.FindAllStringSubmatch(Variables, -1) {
		p.clean(name[1])
	}
	for _, name := range required {
		p.check(os.Getenv(name) != "", name, "not set; %s", source[name])
	}
	config := new(Config)
	for {
		err := envconfig.Process("", config)
		unreadable, ok := errors.AsType[*envconfig.ParseError](err)
		if !ok {
			break
		}
		p.add(unreadable.KeyName, "%q is not a %s", unreadable.Value, readable[unreadable.TypeName])
		_ = os.Unsetenv(unreadable.KeyName) // so that the others are read
	}
	config.validate(p)
	if len(p.lines) > 0 {
		return nil, errors.New("wrong configuration:\n  " + strings.Join(p.lines, "\n  ") + "\norders help env lists every variable")
	}
	return config, nil
}

var (
	removed = map[string]string{
		"COMPLETER_MAX_ATTEMPTS":      "the completer never gives up",
		"EVENTS_SIGNING_KEY":          "set EVENTS_URL and EVENTS_SECRET instead (docs/events.md)",
		"EVENTS_SIGNING_KEY_PREVIOUS": "set EVENTS_URL and EVENTS_SECRET instead (docs/events.md)",
		"RECEIPTS_DIR":                "set SMTP_URL to send receipts by mail",
	}
	source = map[string]string{
		"DATABASE_URL": "expected postgres://user:pass@host:5432/orders. " +
			"docker compose up -d starts a database at postgres://orders:orders@127.0.0.1:5432/orders; playground run needs none",
		"STRIPE_SECRET_KEY": sourceOfKey,
	}
	readable = map[string]string{
		"slog.Level":    "level: debug, info, warn or error",
		"time.Duration": "duration such as 90s, 5m or 72h",
	}
	variableName = regexp.MustCompile(`(?m)^  ([A-Z_]+)`)
	quoted       = regexp.MustCompile(`(?s)^(".*"|'.*')$`)
)

// clean removes the space around the value of a variable.
func (p *problems) clean(name string) {
	value, set := os.LookupEnv(name)
	value = strings.TrimSpace(value)
	invisible := strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) })
	if invisible || quoted.MatchString(value) {
		p.add(name, "has quotes around its value, or an invisible character in it; remove them")
		value = ""
	}
	if set {
		_ = os.Setenv(name, value)
	}
	if value == "" && name != "ADMIN_ADDR" {
		_ = os.Unsetenv(name) // envconfig would not use the default
	}
}

// problems are the errors in the environment. A line has the name of the variable, what is
// wrong and what is expected.
type problems struct{ lines []string }

// add adds a problem of a variable that has none yet.
func (p *problems) add(name, format string, arguments ...any) {
	if !slices.ContainsFunc(p.lines, func(line string) bool { return strings.HasPrefix(line, name+":") }) {
		p.lines = append(p.lines, name+": "+fmt.Sprintf(format, arguments...))
	}
}

func (p *problems) check(ok bool, name, format string, arguments ...any) {
	if !ok {
		p.add(name, format, arguments...)
	}
}
