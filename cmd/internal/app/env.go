package app

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"unicode"

	"github.com/kelseyhightower/envconfig"
)

// Load fills groups of variables, which are structs. The error names every invalid variable, and
// contains no secret. Space around a value is removed, because files such as Kubernetes secrets end
// with a line break. An empty variable counts as not set, except that it turns the admin listener off.
func Load(groups ...any) error {
	found := &problems{}
	for name, instead := range map[string]string{
		"COMPLETER_MAX_ATTEMPTS":      "the completer never gives up",
		"EVENTS_SIGNING_KEY":          "set EVENTS_URL and EVENTS_SECRET instead (docs/events.md)",
		"EVENTS_SIGNING_KEY_PREVIOUS": "set EVENTS_URL and EVENTS_SECRET instead (docs/events.md)",
		"RECEIPTS_DIR":                "set SMTP_URL to send receipts by mail",
	} {
		found.check(os.Getenv(name) == "", name, "was removed: %s", instead)
	}
	for _, group := range groups {
		if err := found.read(group); err != nil {
			return err
		}
	}
	for _, group := range groups {
		if group, ok := group.(interface{ validate(*problems) }); ok {
			group.validate(found)
		}
	}
	if len(found.lines) > 0 {
		return errors.New("wrong configuration:\n  " + strings.Join(found.lines, "\n  ") + "\norders help env lists every variable")
	}
	return nil
}

// read unsets the variables that it cannot read, so that the others are read too.
func (p *problems) read(group any) error {
	var names strings.Builder
	if err := envconfig.Usagef("", group, &names, "{{range .}}{{usage_key .}} {{end}}"); err != nil {
		return err
	}
	if _, ok := group.(*Database); ok {
		names.WriteString(strings.Join(driverVariables(), " "))
	}
	for name := range strings.FieldsSeq(names.String()) {
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
	for {
		err := envconfig.Process("", group)
		unreadable, ok := errors.AsType[*envconfig.ParseError](err)
		if !ok {
			return err
		}
		p.add(unreadable.KeyName, "%q is not a %s", unreadable.Value, readable[unreadable.TypeName])
		_ = os.Unsetenv(unreadable.KeyName)
	}
}

var quoted = regexp.MustCompile(`(?s)^(".*"|'.*')$`)

var readable = map[string]string{
	"app.Address":   "host:port such as 127.0.0.1:8080 or [::1]:8080",
	"int":           "number",
	"slog.Level":    "level: debug, info, warn or error",
	"time.Duration": "duration such as 90s, 5m or 72h",
}

// problems are the errors in the environment. A line has the name of the variable, what is
// wrong and what is expected.
type problems struct{ lines []string }

// add adds a problem of a variable that has none yet.
func (p *problems) add(name, format string, arguments ...any) {
	if !p.has(name) {
		p.lines = append(p.lines, name+": "+fmt.Sprintf(format, arguments...))
	}
}

func (p *problems) check(ok bool, name, format string, arguments ...any) {
	if !ok {
		p.add(name, format, arguments...)
	}
}

func (p *problems) has(name string) bool {
	return slices.ContainsFunc(p.lines, func(line string) bool { return strings.HasPrefix(line, name+":") })
}

//go:embed env.txt
var descriptions string

func description(name string) string {
	return regexp.MustCompile(`(?m)^` + name + `\n((?: .*\n)+)`).FindStringSubmatch(descriptions)[1]
}

var usage = template.Must(template.New("usage").Funcs(template.FuncMap{"describe": description}).Parse(
	`{{range .}}  {{.Key}}{{with .Tags.Get "default"}} (default {{.}}){{end}}
{{describe .Key}}{{end}}`))

// PrintEnv prints the variables of groups.
func PrintEnv(w io.Writer, groups ...any) error {
	for _, group := range groups {
		if err := envconfig.Usaget("", group, w, usage); err != nil {
			return err
		}
	}
	return nil
}
