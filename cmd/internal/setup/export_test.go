package setup

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// EnvTemplate returns the contents of .env.example, which a shell reads.
func EnvTemplate() string {
	var out strings.Builder
	out.WriteString("# Copy to .env, fill in and load with: set -a; . ./.env; set +a\n" +
		"# Put a value with spaces or signs such as & between single quotes. An empty\n" +
		"# variable counts as not set, unless its comment says otherwise. make run needs\n" +
		"# none of them.\n")
	for _, v := range variables(reflect.TypeFor[All]()) {
		mark := ""
		if strings.HasSuffix(v.name, "_ADDR") {
			mark = "#" // the default depends on the command
		}
		fmt.Fprintf(&out, "\n# %s\n%s%s=%s\n", words(v.description), mark, v.name, v.fallback)
	}
	return out.String()
}

func words(text string) string { return strings.Join(strings.Fields(text), " ") }

// Defaults has all variables of help env, each with its default or "".
func Defaults() map[string]string {
	defaults := map[string]string{}
	for _, v := range variables(reflect.TypeFor[All]()) {
		defaults[v.name] = v.fallback
	}
	return defaults
}

// Names lists all variables of help env.
func Names() []string { return slices.Sorted(maps.Keys(Defaults())) }
