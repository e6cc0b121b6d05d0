package app

import (
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
)

var described = regexp.MustCompile(`(?m)^  ([A-Z_]+)(?: \(default (.*)\))?\n((?:      .*\n)+)`)

// EnvTemplate returns the contents of .env.example, which a shell reads.
func EnvTemplate() string {
	var out strings.Builder
	out.WriteString("# Copy to .env, fill in and load with: set -a; . ./.env; set +a\n" +
		"# Put a value with spaces or signs such as & between single quotes. An empty\n" +
		"# variable counts as not set, unless its comment says otherwise. make run needs\n" +
		"# none of them.\n")
	for _, variable := range described.FindAllStringSubmatch(Variables, -1) {
		out.WriteString("\n# " + strings.Join(strings.Fields(variable[3]), " ") + "\n")
		if strings.HasSuffix(variable[1], "_ADDR") {
			out.WriteString("#") // the default depends on the command
		}
		out.WriteString(variable[1] + "=" + variable[2] + "\n")
	}
	return out.String()
}

// Parse returns what the driver connects to.
func (d Database) Parse() (*pgxpool.Config, error) { return d.parse() }

// Defaults has all variables of help env, each with its default or "".
func Defaults() map[string]string {
	defaults := map[string]string{}
	for _, variable := range described.FindAllStringSubmatch(Variables, -1) {
		defaults[variable[1]] = variable[2]
	}
	return defaults
}
