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
	"unicode"

	"github.com/kelseyhightower/envconfig"
)

type validator interface{ validate(*problems) }

// Load fills config, a pointer to a struct of groups of variables. The error names every
// invalid variable, and contains no secret. Space around a value is removed, because files such as
// Kubernetes secrets end with a line break. An empty variable counts as not set, unless it has the
// tag "empty".
func Load(config any) error { return load(config, &problems{}) }

// LoadDev is [Load] for commands that start missing services and accept only test keys.
func LoadDev(config any) error { return load(config, &problems{dev: true}) }

func load(config any, found *problems) error {
	for _, v := range variables(reflect.TypeOf(config).Elem()) {
		value, set := os.LookupEnv(v.name)
		value = strings.TrimSpace(value)
		invisible := strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) })
		if invisible || quoted.MatchString(value) {
			found.add(v.name, "has quotes around its value, or an invisible character in it; remove them")
			defer func() { _ = os.Setenv(v.name, value) }()
			_ = os.Unsetenv(v.name)
			continue
		}
		if set {
			_ = os.Setenv(v.name, value)
		}
		if value == "" && v.empty == "" {
			_ = os.Unsetenv(v.name) // envconfig would not use the default
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
type problems struct {
	dev   bool
	lines []string
}

func (p *problems) add(name, format string, arguments ...any) {
	p.lines = append(p.lines, name+": "+fmt.Sprintf(format, arguments...))
}

func (p *problems) has(name string) bool {
	return slices.ContainsFunc(p.lines, func(line string) bool { return strings.HasPrefix(line, name+":") })
}

// missing adds a problem for a variable that is not set, except with [LoadDev].
func (p *problems) missing(name, advice string) {
	if !p.dev && !p.has(name) {
		p.add(name, "not set; %s", advice)
	}
}

type variable struct{ name, fallback, empty, description string }

//go:embed env.txt
var descriptions string

func description(name string) string {
	return regexp.MustCompile(`(?m)^` + name + `\n((?: .*\n)+)`).FindStringSubmatch(descriptions)[1]
}

// variables returns the variables of a struct of groups, in order.
func variables(t reflect.Type) []variable {
	var list []variable
	for i := range t.NumField() {
		field := t.Field(i)
		if name := field.Tag.Get("envconfig"); name != "" {
			list = append(list, variable{name, field.Tag.Get("default"), field.Tag.Get("empty"), description(name)})
		} else if field.Anonymous {
			list = append(list, variables(field.Type)...)
		}
	}
	return list
}

// PrintEnv prints the variables of config.
func PrintEnv(w io.Writer, config any) {
	for _, v := range variables(reflect.TypeOf(config).Elem()) {
		fmt.Fprint(w, "  ", v.name)
		if v.fallback != "" {
			fmt.Fprintf(w, " (default %s)", v.fallback)
		}
		fmt.Fprint(w, "\n", v.description)
	}
}
