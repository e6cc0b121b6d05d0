package app

import (
	"io"
	"maps"
	"slices"
	"strings"
	"text/template"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/kelseyhightower/envconfig"
)

// EnvTemplate returns the contents of .env.example, which a shell reads.
func EnvTemplate() string {
	var out strings.Builder
	out.WriteString("# Copy to .env, fill in and load with: set -a; . ./.env; set +a\n" +
		"# Put a value with spaces or signs such as & between single quotes. An empty\n" +
		"# variable counts as not set, unless its comment says otherwise. make run needs\n" +
		"# none of them.\n")
	// The default of an address depends on the command.
	printVariables(&out, `{{range .}}
# {{words .Key}}
{{if hasSuffix .Key "_ADDR"}}#{{end}}{{.Key}}={{.Tags.Get "default"}}
{{end}}`)
	return out.String()
}

func printVariables(w io.Writer, text string) {
	functions := template.FuncMap{"words": func(name string) string { return strings.Join(strings.Fields(description(name)), " ") }, "hasSuffix": strings.HasSuffix}
	for _, group := range new(Config).All() {
		if err := envconfig.Usaget("", group, w, template.Must(template.New("").Funcs(functions).Parse(text))); err != nil {
			panic(err)
		}
	}
}

// Parse returns what the driver connects to.
func (d Database) Parse() (*pgxpool.Config, error) { return d.parse() }

// Defaults has all variables of help env, each with its default or "".
func Defaults() map[string]string {
	var lines strings.Builder
	printVariables(&lines, "{{range .}}{{.Key}}={{.Tags.Get \"default\"}}\n{{end}}")
	defaults := map[string]string{}
	for line := range strings.Lines(lines.String()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		defaults[name] = value
	}
	return defaults
}

// Names lists all variables of help env.
func Names() []string { return slices.Sorted(maps.Keys(Defaults())) }
