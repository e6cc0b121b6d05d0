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
// and contains no secret. Space around a value is former, because files such as Kubernetes secrets end
// with a line break. An empty variable counts as not set, except that it turns the admin listener off.
func Load(required ...string) (*Config, error) {
	p := new(problems)
	for name, instead := range former {
		p.check(os.Getenv(name) == "", name, "%s", instead)
	}
	for _, match := range variableName.FindAllStringSubmatch(Variables, -1) {
		name := match[1]
		value, set := os.LookupEnv(name)
		if value = strings.TrimSpace(value); value == "" && name != "ADMIN_ADDR" {
			_ = os.Unsetenv(name) // envconfig would not use the default
		} else if set {
			_ = os.Setenv(name, value)
		}
	}
	for _, name := range required {
		p.check(os.Getenv(name) != "", name, "not set")
	}
	config := new(Config)
	for {
		err := envconfig.Process("", config)
		unreadable, ok := errors.AsType[*envconfig.ParseError](err)
		if !ok {
			break
		}
		p.add(unreadable.KeyName, "%v", unreadable.Err)
		_ = os.Unsetenv(unreadable.KeyName) // so that the others are read
	}
	config.validate(p)
	if len(p.lines) > 0 {
		return nil, errors.New("wrong configuration:\n  " + strings.Join(p.lines, "\n  ") + "\norders help env lists every variable")
	}
	return config, nil
}

var (
	former = map[string]string{
		"COMPLETER_MAX_ATTEMPTS":      "was removed: the completer never gives up",
		"EVENTS_SIGNING_KEY":          "was removed: set EVENTS_URL and EVENTS_SECRET instead (docs/events.md)",
		"EVENTS_SIGNING_KEY_PREVIOUS": "was removed: set EVENTS_URL and EVENTS_SECRET instead (docs/events.md)",
		"LOCK_TIMEOUT":                "is called LEASE_DURATION now",
		"RECEIPTS_DIR":                "was removed: set SMTP_URL to send receipts by mail",
		"STRIPE_TIMEOUT":              "is called STEP_TIMEOUT now",
	}
	variableName = regexp.MustCompile(`(?m)^  ([A-Z_]+)`)
)

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
