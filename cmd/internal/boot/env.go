package boot

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"
)

type validator interface{ validate(*problems) }

// Load fills config, a pointer to a struct of groups of variables, from the
// environment. The error is a [*ConfigError], which names every invalid variable; the
// valid ones are set. An empty variable counts as not set, unless it has the tag
// "empty".
func Load(config any) error { return load(config, &problems{}) }

// LoadDev is [Load] for commands that start missing services, see [StartDevServices].
// They accept only test keys of the provider.
func LoadDev(config any) error { return load(config, &problems{dev: true}) }

func load(config any, found *problems) error {
	for _, v := range variables(reflect.TypeOf(config).Elem()) {
		if value, set := os.LookupEnv(v.name); set && value == "" && v.empty == "" {
			// envconfig would not use the default.
			if err := os.Unsetenv(v.name); err != nil {
				return fmt.Errorf("clear %s: %w", v.name, err)
			}
		}
	}
	if err := envconfig.Process("", config); err != nil {
		return fmt.Errorf("read the environment: %w", err)
	}
	validateAll(reflect.ValueOf(config), found)
	return found.err()
}

func validateAll(config reflect.Value, found *problems) {
	for i := range config.Elem().NumField() {
		if field := config.Elem().Type().Field(i); field.Anonymous && field.Type.Kind() == reflect.Struct && field.IsExported() {
			validateAll(config.Elem().Field(i).Addr(), found)
		}
	}
	if group, ok := config.Interface().(validator); ok {
		group.validate(found)
	}
}

// Problem is an error in the environment.
type Problem struct {
	Name string // of the variable, or a description of several
	Text string // what is wrong and what is expected; contains no secret
}

// ConfigError lists every error in the environment.
type ConfigError struct{ Problems []Problem }

func (e *ConfigError) Error() string {
	var text strings.Builder
	text.WriteString("wrong configuration:")
	for _, problem := range e.Problems {
		text.WriteString("\n  " + problem.Name + ": " + problem.Text)
	}
	text.WriteString("\norders help env lists every variable")
	return text.String()
}

type problems struct {
	dev  bool // missing services are started, see LoadDev
	list []Problem
}

// add adds a problem once: Go promotes the method of a group that is the only embedded
// field, so that it runs twice.
func (p *problems) add(name, format string, arguments ...any) {
	if problem := (Problem{name, fmt.Sprintf(format, arguments...)}); !slices.Contains(p.list, problem) {
		p.list = append(p.list, problem)
	}
}

// missing adds a problem for a variable that is not set, except with [LoadDev].
func (p *problems) missing(name, advice string) {
	if !p.dev {
		p.add(name, "not set; %s", advice)
	}
}

func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	return &ConfigError{p.list}
}

// Duration is a positive duration such as 90s. Decode records an invalid value, so that
// one start reports every problem.
type Duration struct {
	time.Duration
	invalid string
}

// Decode is called by envconfig.
func (d *Duration) Decode(text string) error {
	value, err := time.ParseDuration(text)
	*d = Duration{Duration: value}
	if err != nil || value <= 0 {
		d.invalid = text
	}
	return nil
}

func (d Duration) validate(p *problems, name string) {
	if d.invalid != "" {
		p.add(name, "%q is not a positive duration such as 90s, 5m or 72h", d.invalid)
	}
}

type variable struct{ name, fallback, empty, description string }

//go:embed env.txt
var descriptions string

// description returns the indented lines after a variable's name in env.txt.
func description(name string) string {
	_, rest, _ := strings.Cut("\n"+descriptions, "\n"+name+"\n")
	var text strings.Builder
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, " ") {
			break
		}
		text.WriteString(line)
	}
	return text.String()
}

// variables returns the variables of a struct of groups, in order.
func variables(t reflect.Type) []variable {
	var list []variable
	for i := range t.NumField() {
		field := t.Field(i)
		if name := field.Tag.Get("envconfig"); name != "" {
			list = append(list, variable{name, field.Tag.Get("default"), field.Tag.Get("empty"), description(name)})
		} else if field.Anonymous && field.Type.Kind() == reflect.Struct {
			list = append(list, variables(field.Type)...)
		}
	}
	return list
}

// PrintEnv prints the variables of config, a pointer to a struct of groups, or of all
// commands if it is nil, for 80 columns.
func PrintEnv(w io.Writer, config any) {
	t := reflect.TypeFor[All]()
	if config != nil {
		t = reflect.TypeOf(config).Elem()
	}
	for _, v := range variables(t) {
		fmt.Fprint(w, "  ", v.name)
		if v.fallback != "" {
			fmt.Fprintf(w, " (default %s)", v.fallback)
		}
		fmt.Fprint(w, "\n", v.description)
	}
}
