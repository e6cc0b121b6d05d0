//go:build copies

package copies_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const noOwn = "func registerOwn(*idempotency.Engine, *Config, *pgxpool.Pool, http.RoundTripper) func(*api.Handlers, chi.Router) {\n\treturn nil\n}\n"

// A reader follows docs/add-an-operation.md with the code that it shows, and gives the package another name.
func TestGuide(t *testing.T) {
	_, folder := clone(t)
	g := guide{t, folder, read(t, root, "docs/add-an-operation.md")}

	// 1. The table
	g.addTable("labels")
	run(t, folder, nil, "go", "test", "./migrations")

	// 2. The package
	for _, line := range strings.Split(strings.TrimSpace(g.block("$ mkdir labels")), "\n") {
		run(t, folder, nil, "bash", "-c", strings.TrimPrefix(line, "$ "))
	}
	run(t, folder, nil, "go", "test", "./labels")
	const name = "parcels"
	g.rename("labels", name)

	// 3. The program
	const config, app = "cmd/internal/app/config.go", "cmd/internal/app/app.go"
	g.after(config, "WebhookSecret Secret `envconfig:\"STRIPE_WEBHOOK_SECRET\"`\n", g.block("CarrierURL    string"))
	g.after(config, "func (c *Config) validate(p *problems) {\n", g.block(`"CARRIER_URL", "is not`))
	g.before("cmd/internal/app/env.txt", "  SMTP_URL\n", g.block("URL of the carrier."))
	g.before(app, "\ta := &App{Config: config", g.block("a live Stripe key requires CARRIER_URL"))
	g.replace(app, noOwn, renamed(g.block("&labels.Service{Pool: pool,"), "labels", name))
	g.replace(app, `/idempotency"`, `/idempotency"`+"\n\t\""+oldPath(t)+"/"+name+`"`)
	run(t, folder, nil, "make", "generate")
	run(t, folder, nil, "go", "build", "./...")
	run(t, folder, nil, "go", "test", "./cmd/internal/app")
	run(t, folder, nil, "go", "test", "-run", "Roles", "./cmd/orders")
	production := []string{"DATABASE_URL=postgres://u:p@127.0.0.1:1/orders", "STRIPE_SECRET_KEY=sk_live_1"}
	_, err := output(t, folder, production, "go", []string{"run", "./cmd/orders", "completer"})
	require.ErrorContains(t, err, "CARRIER_URL")

	// 4. The problems
	for _, problem := range []string{"label-refused.md", "order-not-shippable.md"} {
		g.write("api/problems/"+problem, read(t, folder, "examples/labels/"+problem))
	}
	run(t, folder, nil, "make", "generate")
	run(t, folder, nil, "go", "test", "-run", "Problem", "./api")

	// 5. The contract
	g.addContract("labels")
	g.replace("openapi.yaml", "[create_order, ", "[create_order, buy_label, ")
	g.replace("openapi.yaml", "[started, ", "[started, label_inserted, label_sent, ")
	g.write("api/own_test.go", renamed(read(t, folder, "examples/labels/own_test.txt"), "labels", name))
	run(t, folder, nil, "go", "test", "./api", "./cmd/playground/internal/docs")

	// 6. Everything: here, what depends on the contract
	run(t, folder, nil, "make", "fmt", "generate")
	g.requireOutside(name+"/", 12)
	if *everything {
		run(t, folder, nil, "make", "test", "check")
		return
	}
	run(t, folder, nil, "go", "test", "./"+name)
	run(t, folder, nil, "make", "lint", "generated", "contract")
}

// The same for a path below another resource, without an external call.
func TestGuide_below(t *testing.T) {
	_, folder := clone(t)
	g := guide{t, folder, read(t, root, "docs/add-an-operation.md")}
	g.addTable("notes")
	g.write("notes/notes.go", read(t, folder, "examples/notes/notes.go"))
	const app, name = "cmd/internal/app/app.go", "giftnotes"
	g.rename("notes", name)
	g.replace(app, noOwn, renamed(g.block("notes.Routes(pool)"), "notes", name))
	g.replace(app, `/idempotency"`, `/idempotency"`+"\n\t\""+oldPath(t)+"/"+name+`"`)
	g.write("api/problems/note-exists.md", read(t, folder, "examples/notes/note-exists.md"))
	g.before("orders/erase.go", "\t\taudit.WriteTx(ctx, batch, accountID, orderID", g.block("UPDATE notes"))
	g.addContract("notes")
	g.replace("openapi.yaml", "[create_order, ", "[create_order, create_note, ")
	g.write("api/own_test.go", renamed(read(t, folder, "examples/notes/own_test.txt"), "notes", name))
	run(t, folder, nil, "make", "fmt", "generate", "contract")
	run(t, folder, nil, "go", "test", "./api", "./cmd/playground/internal/docs", "./migrations")
	run(t, folder, nil, "go", "test", "-run", "Roles", "./cmd/orders")
	run(t, folder, nil, "make", "lint")
	g.requireOutside(name+"/", 12)
}

// The page about a new field shows a method for an optional object.
func TestGuide_object(t *testing.T) {
	_, folder := clone(t)
	g := guide{t, folder, read(t, root, "docs/guides/where-to-change.md")}
	g.write("internal/httpjson/object.go", "package httpjson\n\nimport \"encoding/json\"\n"+g.block("func (d *Decoder) Object("))
	g.write("internal/httpjson/object_internal_test.go", `package httpjson

import "testing"

func TestObject(t *testing.T) {
	for body, want := range map[string]int{"{}": 0, "{\"at\":{\"city\":\"Ulm\"}}": 0, "{\"at\":null}": 1, "{\"at\":{}}": 1, "{\"at\":{\"city\":\"Ulm\",\"zip\":\"1\"}}": 1} {
		in := NewDecoder([]byte(body))
		in.Object("at", func(at *Decoder) { at.Text("city", Required, 1, 9) })
		if got := len(*in.errs); got != want {
			t.Errorf("%s: %d errors, want %d", body, got, want)
		}
	}
}
`)
	run(t, folder, nil, "go", "test", "./internal/httpjson")
}

// The page also deletes refunds, and changes at most 12 files that are not only theirs.
func TestGuide_delete(t *testing.T) {
	_, folder := clone(t)
	git(t, folder, "rm", "-rq", "lab", "spec")
	g := guide{t, folder, ""}
	run(t, folder, nil, "bash", "examples/delete-refunds.sh")
	run(t, folder, nil, "make", "fmt", "generate", "contract")
	changed := g.changed("--modified", "--others")
	require.LessOrEqual(t, len(changed), 12, "%q", changed)
	run(t, folder, nil, "go", "vet", "./...")
	run(t, folder, nil, "make", "lint")
	run(t, folder, nil, "go", "test", "./api", "./client", "./cmd/...", "./orders/...", "./internal/crash")
	if *everything { // what make crash runs, without the cases
		run(t, folder, nil, "go", "test", "-vet=off", "-timeout=1h", "-run", "TestMutants", "./internal/crash", "-args", "-matrix=all")
	}
}

// guide is the page, and the copy that a reader changes.
type guide struct {
	t            *testing.T
	folder, page string
}

// block returns the code block of the page that contains the text.
func (g guide) block(text string) string {
	g.t.Helper()
	for i, part := range strings.Split(g.page, "\n```") {
		if i%2 == 1 && strings.Contains(part, text) {
			_, code, _ := strings.Cut(part, "\n")
			return code + "\n"
		}
	}
	require.Fail(g.t, "the page has no such block", text)
	return ""
}

// addTable adds the migration of an example.
func (g guide) addTable(example string) {
	g.t.Helper()
	g.write("migrations/20261126103000_"+example+".sql",
		"-- +goose Up\n"+read(g.t, g.folder, "examples/"+example+"/schema.sql")+"\n-- +goose Down\nDROP TABLE "+example+";\n")
}

// rename renames the reader's package and its folder.
func (g guide) rename(from, to string) {
	g.t.Helper()
	require.NoError(g.t, os.Rename(filepath.Join(g.folder, from), filepath.Join(g.folder, to)))
	files, err := filepath.Glob(filepath.Join(g.folder, to, "*.go"))
	require.NoError(g.t, err)
	for _, file := range files {
		name := to + "/" + filepath.Base(file)
		g.write(name, renamed(read(g.t, g.folder, name), from, to))
	}
}

// renamed returns code with another name for the package.
func renamed(code, from, to string) string {
	name := regexp.MustCompile(`([Pp]ackage |orders-api/)` + from + `(_test)?\b|\b` + from + `\.[A-Z]`)
	return name.ReplaceAllStringFunc(code, func(found string) string { return strings.Replace(found, from, to, 1) })
}

// addContract adds the contract of an example to openapi.yaml.
func (g guide) addContract(example string) {
	g.t.Helper()
	_, contract, found := strings.Cut(read(g.t, g.folder, "examples/"+example+"/openapi.yaml"), "\npaths:\n")
	require.True(g.t, found)
	paths, components, found := strings.Cut(contract, "\n# What the paths refer to")
	require.True(g.t, found)
	_, components, found = strings.Cut(components, "\ncomponents:\n")
	require.True(g.t, found)
	_, row, found := strings.Cut(read(g.t, g.folder, "examples/"+example+"/openapi.yaml"), "\n#   ")
	require.True(g.t, found)
	row, _, _ = strings.Cut(row, "\n")
	g.before("openapi.yaml", "    | cancel | 200", "    "+row+"\n")
	g.after("openapi.yaml", "\npaths:\n", paths+"\n")
	for _, section := range strings.Split(components, "\n\n") {
		name, content, _ := strings.Cut(section, "\n")
		g.after("openapi.yaml", "\n"+name+"\n", content+"\n\n")
	}
}

// changed lists files that differ from the commit.
func (g guide) changed(which ...string) []string {
	g.t.Helper()
	return strings.Fields(git(g.t, g.folder, append([]string{"ls-files", "--exclude-standard"}, which...)...))
}

// requireOutside bounds the files that changed outside of the operation's own folder.
func (g guide) requireOutside(own string, most int) {
	g.t.Helper()
	outside := slices.DeleteFunc(g.changed("--others", "--modified"), func(name string) bool { return strings.HasPrefix(name, own) })
	require.LessOrEqual(g.t, len(outside), most, "%q", outside)
}

func (g guide) write(name, text string) {
	g.t.Helper()
	path := filepath.Join(g.folder, filepath.FromSlash(name))
	require.NoError(g.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(g.t, os.WriteFile(path, []byte(text), 0o644))
}

// replace replaces the first occurrence of a text.
func (g guide) replace(name, old, text string) {
	g.t.Helper()
	content := read(g.t, g.folder, name)
	require.Contains(g.t, content, old, name)
	g.write(name, strings.Replace(content, old, text, 1))
}

func (g guide) before(name, place, text string) { g.t.Helper(); g.replace(name, place, text+place) }
func (g guide) after(name, place, text string)  { g.t.Helper(); g.replace(name, place, place+text) }
