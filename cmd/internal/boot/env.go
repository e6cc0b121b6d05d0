package boot

import (
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"
)

// Section is a group of environment variables that checks itself.
type Section interface{ check(*faults) }

// Load fills config, a pointer to a struct of sections, from the environment
// and checks it. The error is a [*ConfigError], which names every variable that is
// wrong, what it expects and where to get it; the others are filled in all the
// same. A variable that is set to nothing counts as not set, unless its tag empty
// says what nothing means.
func Load(config any) error { return load(config, &faults{}) }

// LoadLocal is [Load] for the commands that bring what the environment does not
// name, see [StartLocal]. They take test keys of the provider only.
func LoadLocal(config any) error { return load(config, &faults{local: true}) }

func load(config any, found *faults) error {
	for _, v := range variables(reflect.TypeOf(config).Elem()) {
		if value, set := os.LookupEnv(v.name); set && value == "" && v.empty == "" {
			// envconfig would take "" for a value and not use the default.
			if err := os.Unsetenv(v.name); err != nil {
				return fmt.Errorf("clear %s: %w", v.name, err)
			}
		}
	}
	if err := envconfig.Process("", config); err != nil {
		return fmt.Errorf("read the environment: %w", err)
	}
	checkSections(reflect.ValueOf(config), found)
	return found.err()
}

// checkSections lets every section inside config, and then config, check itself.
func checkSections(config reflect.Value, found *faults) {
	for i := range config.Elem().NumField() {
		if field := config.Elem().Type().Field(i); field.Anonymous && field.Type.Kind() == reflect.Struct && field.IsExported() {
			checkSections(config.Elem().Field(i).Addr(), found)
		}
	}
	if section, ok := config.Interface().(Section); ok {
		section.check(found)
	}
}

// Fault is something that is wrong with the environment.
type Fault struct {
	Name string // of the variable, or what several of them have in common
	Text string // what is wrong and what is expected; no secret
}

// ConfigError says what is wrong with the environment.
type ConfigError struct{ Faults []Fault }

func (e *ConfigError) Error() string {
	var text strings.Builder
	text.WriteString("wrong configuration:")
	for _, fault := range e.Faults {
		text.WriteString("\n  " + fault.Name + ": " + fault.Text)
	}
	text.WriteString("\norders help env lists every variable")
	return text.String()
}

// faults collects what is wrong with the environment.
type faults struct {
	local bool // what is missing is brought along
	list  []Fault
}

// add notes a fault, once: Go promotes the check of a section that is embedded
// alone, which then runs twice.
func (f *faults) add(name, format string, arguments ...any) {
	if fault := (Fault{name, fmt.Sprintf(format, arguments...)}); !slices.Contains(f.list, fault) {
		f.list = append(f.list, fault)
	}
}

// missing notes that a variable is not set, where that is a fault.
func (f *faults) missing(name, advice string) {
	if !f.local {
		f.add(name, "not set; %s", advice)
	}
}

func (f *faults) err() error {
	if len(f.list) == 0 {
		return nil
	}
	return &ConfigError{f.list}
}

// Duration is a duration such as 90s that notes a wrong value instead of
// failing, so that one start names every fault.
type Duration struct {
	time.Duration
	wrong string
}

// Decode is called by envconfig.
func (d *Duration) Decode(text string) error {
	value, err := time.ParseDuration(text)
	*d = Duration{Duration: value}
	if err != nil || value <= 0 {
		d.wrong = text
	}
	return nil
}

func (d Duration) check(f *faults, name string) {
	if d.wrong != "" {
		f.add(name, "%q is not a positive duration such as 90s, 5m or 72h", d.wrong)
	}
}

// Count is a positive number. Decoding notes what is wrong, as with [Duration].
type Count struct {
	Int   int
	wrong string
}

// Decode is called by envconfig.
func (c *Count) Decode(text string) error {
	value, err := strconv.Atoi(text)
	*c = Count{Int: value}
	if err != nil || value <= 0 {
		c.wrong = text
	}
	return nil
}

func (c Count) check(f *faults, name string) {
	if c.wrong != "" {
		f.add(name, "%q is not a positive number", c.wrong)
	}
}

// variable is one environment variable as its struct tags describe it.
type variable struct{ name, fallback, empty, description string }

// variables lists the variables of a struct of sections, in order.
func variables(t reflect.Type) []variable {
	var list []variable
	for i := range t.NumField() {
		field := t.Field(i)
		if name := field.Tag.Get("envconfig"); name != "" {
			list = append(list, variable{name, field.Tag.Get("default"), field.Tag.Get("empty"), field.Tag.Get("desc")})
		} else if field.Anonymous && field.Type.Kind() == reflect.Struct {
			list = append(list, variables(field.Type)...)
		}
	}
	return list
}

// everything is the environment of all commands together.
type everything struct {
	Database
	Listen
	Admin
	Stripe
	Mail
	Durations
	Completer
	Traces
	Log
}

// PrintEnv lists the variables of config, a pointer to a struct of sections, or
// all there are when it is nil, for a terminal of 80 columns.
func PrintEnv(w io.Writer, config any) {
	t := reflect.TypeFor[everything]()
	if config != nil {
		t = reflect.TypeOf(config).Elem()
	}
	for _, v := range variables(t) {
		fmt.Fprint(w, "  ", v.name)
		if v.fallback != "" {
			fmt.Fprintf(w, " (default %s)", v.fallback)
		}
		column := 80 // begin a line
		for _, word := range strings.Fields(v.description) {
			if column += 1 + len(word); column > 80 {
				fmt.Fprint(w, "\n     ")
				column = 6 + len(word)
			}
			fmt.Fprint(w, " ", word)
		}
		fmt.Fprintln(w)
	}
}

// MarkdownEnv is the same table as the README has it.
func MarkdownEnv() string {
	var out strings.Builder
	out.WriteString("| variable | default | meaning |\n| --- | --- | --- |\n")
	for _, v := range variables(reflect.TypeFor[everything]()) {
		fallback := ""
		if v.fallback != "" {
			fallback = "`" + v.fallback + "`"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", v.name, fallback, v.description)
	}
	return out.String()
}

// ExampleEnv is the contents of .env.example, which a shell reads.
func ExampleEnv() string {
	var out strings.Builder
	out.WriteString("# Copy to .env, fill in and load with: set -a; . ./.env; set +a\n" +
		"# A value with spaces or signs such as & goes between single quotes. What is\n" +
		"# empty counts as not set, unless its comment says otherwise. orders dev and\n" +
		"# orders demo need none of it.\n")
	for _, v := range variables(reflect.TypeFor[everything]()) {
		value := v.fallback
		if strings.ContainsAny(value, " <>&") {
			value = "'" + value + "'"
		}
		mark := ""
		if v.empty != "" {
			mark = "#" // for all processes of a machine it would be in use
		}
		fmt.Fprintf(&out, "\n# %s\n%s%s=%s\n", v.description, mark, v.name, value)
	}
	return out.String()
}
