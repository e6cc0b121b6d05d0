package boot

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kelseyhightower/envconfig"
)

// Section is a group of environment variables that checks itself.
type Section interface{ check(*faults) }

// Load fills config, a pointer to a struct of sections, from the environment
// and checks it. The error names every variable that is wrong, what it expects
// and where to get it. A variable that is set to nothing counts as not set.
func Load(config any) error {
	for _, v := range variables(reflect.TypeOf(config).Elem()) {
		if value, set := os.LookupEnv(v.name); set && value == "" {
			// envconfig would take "" for a value and not use the default.
			if err := os.Unsetenv(v.name); err != nil {
				return fmt.Errorf("clear %s: %w", v.name, err)
			}
		}
	}
	if err := envconfig.Process("", config); err != nil {
		return fmt.Errorf("read the environment: %w", err)
	}
	var found faults
	checkSections(reflect.ValueOf(config), &found)
	return found.err()
}

// checkSections lets config and every section inside it check itself.
func checkSections(config reflect.Value, found *faults) {
	if section, ok := config.Interface().(Section); ok {
		section.check(found)
	}
	for i := range config.Elem().NumField() {
		if field := config.Elem().Type().Field(i); field.Anonymous && field.Type.Kind() == reflect.Struct && field.IsExported() {
			checkSections(config.Elem().Field(i).Addr(), found)
		}
	}
}

// faults collects what is wrong with the environment.
type faults []string

// add notes a fault, once: Go promotes the check of a section that is embedded
// alone, which then runs twice.
func (f *faults) add(name, format string, arguments ...any) {
	if fault := name + ": " + fmt.Sprintf(format, arguments...); !slices.Contains(*f, fault) {
		*f = append(*f, fault)
	}
}

func (f faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return errors.New("the configuration is not complete:\n  " + strings.Join(f, "\n  ") +
		"\norders help env lists every variable")
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

func (d Duration) check(f *faults, name string) bool {
	if d.wrong != "" {
		f.add(name, "%q is not a positive duration such as 90s, 5m or 72h", d.wrong)
		return false
	}
	return true
}

// variable is one environment variable as its struct tags describe it.
type variable struct{ name, fallback, description string }

// variables lists the variables of a struct of sections, in order.
func variables(t reflect.Type) []variable {
	var list []variable
	for i := range t.NumField() {
		field := t.Field(i)
		if name := field.Tag.Get("envconfig"); name != "" {
			list = append(list, variable{name, field.Tag.Get("default"), field.Tag.Get("desc")})
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
	Stripe
	Mail
	Durations
	Log
}

// PrintEnv writes the table of all variables for a terminal.
func PrintEnv(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "VARIABLE\tDEFAULT\tMEANING")
	for _, v := range variables(reflect.TypeFor[everything]()) {
		fmt.Fprintf(table, "%s\t%s\t%s\n", v.name, v.fallback, v.description)
	}
	return table.Flush()
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

// ExampleEnv is the contents of .env.example.
func ExampleEnv() string {
	var out strings.Builder
	out.WriteString("# Copy to .env, fill in and load with: set -a; . ./.env; set +a\n" +
		"# orders dev and orders demo need none of it.\n")
	for _, v := range variables(reflect.TypeFor[everything]()) {
		fmt.Fprintf(&out, "\n# %s\n%s=%s\n", v.description, v.name, v.fallback)
	}
	return out.String()
}
