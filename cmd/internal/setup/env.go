package setup

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"unicode"

	"github.com/kelseyhightower/envconfig"
)

type validator interface{ validate(*problems) }

// Load fills config, a pointer to a struct of groups of variables. The error names every
// invalid variable, and contains no secret. Space around a value is removed, because files such as
// Kubernetes secrets end with a line break. An empty variable counts as not set, except that it
// turns the admin listener off.
func Load(config any) error {
	var names strings.Builder
	if err := envconfig.Usagef("", config, &names, "{{range .}}{{usage_key .}} {{end}}"); err != nil {
		return err
	}
	found := &problems{}
	for name := range strings.FieldsSeq(names.String()) {
		value, set := os.LookupEnv(name)
		value = strings.TrimSpace(value)
		invisible := strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) })
		if invisible || quoted.MatchString(value) {
			found.add(name, "has quotes around its value, or an invisible character in it; remove them")
			defer func() { _ = os.Setenv(name, value) }()
			_ = os.Unsetenv(name)
			continue
		}
		if set {
			_ = os.Setenv(name, value)
		}
		if value == "" && name != "ADMIN_ADDR" {
			_ = os.Unsetenv(name) // envconfig would not use the default
		}
	}
	err := envconfig.Process("", config)
	for err != nil {
		unreadable, ok := errors.AsType[*envconfig.ParseError](err)
		if !ok {
			return fmt.Errorf("read the environment: %w", err)
		}
		found.add(unreadable.KeyName, "%q is not a %s", unreadable.Value, readable[unreadable.TypeName])
		_ = os.Unsetenv(unreadable.KeyName)
		defer func() { _ = os.Setenv(unreadable.KeyName, unreadable.Value) }()
		err = envconfig.Process("", config)
	}
	validateAll(reflect.ValueOf(config), found)
	if len(found.lines) > 0 {
		return errors.New("wrong configuration:\n  " + strings.Join(found.lines, "\n  ") + "\norders help env lists every variable")
	}
	return nil
}

var quoted = regexp.MustCompile(`(?s)^(".*"|'.*')$`)

var readable = map[string]string{
	"setup.Address": "host:port such as 127.0.0.1:8080",
	"int":           "number",
	"slog.Level":    "level: debug, info, warn or error",
	"time.Duration": "duration such as 90s, 5m or 72h",
}

// validateAll validates each group, which is a struct without groups.
func validateAll(config reflect.Value, found *problems) {
	isGroup := true
	for i := range config.Elem().NumField() {
		if config.Elem().Type().Field(i).Anonymous {
			isGroup = false
			validateAll(config.Elem().Field(i).Addr(), found)
		}
	}
	if group, ok := config.Interface().(validator); ok && isGroup {
		group.validate(found)
	}
}

// problems are the errors in the environment. A line has the name of the variable, what is
// wrong and what is expected.
type problems struct{ lines []string }

func (p *problems) add(name, format string, arguments ...any) {
	p.lines = append(p.lines, name+": "+fmt.Sprintf(format, arguments...))
}

func (p *problems) has(name string) bool {
	return slices.ContainsFunc(p.lines, func(line string) bool { return strings.HasPrefix(line, name+":") })
}

// missing adds a problem for a variable that is not set.
func (p *problems) missing(name, advice string) {
	if !p.has(name) {
		p.add(name, "not set; %s", advice)
	}
}

//go:embed env.txt
var descriptions string

func description(name string) string {
	return regexp.MustCompile(`(?m)^` + name + `\n((?: .*\n)+)`).FindStringSubmatch(descriptions)[1]
}

var usage = template.Must(template.New("usage").Funcs(template.FuncMap{"describe": description}).Parse(
	`{{range .}}  {{.Key}}{{with .Tags.Get "default"}} (default {{.}}){{end}}
{{describe .Key}}{{end}}`))

// PrintEnv prints the variables of config.
func PrintEnv(w io.Writer, config any) error { return envconfig.Usaget("", config, w, usage) }
