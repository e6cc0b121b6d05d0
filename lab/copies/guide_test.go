//go:build copies

package copies_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const noOwn = "func registerOwn(*idempotency.Engine, *Config, *pgxpool.Pool, http.RoundTripper) func(*api.Handlers, chi.Router) {\n\treturn nil\n}\n"

// A reader follows docs/add-an-operation.md with the code that it shows.
func TestGuide(t *testing.T) {
	_, folder := clone(t)
	g := guide{t, folder, read(t, root, "docs/add-an-operation.md")}

	// 1. The table
	g.write("migrations/20261126103000_credits.sql",
		"-- +goose Up\n"+read(t, folder, "examples/credits/schema.sql")+"\n-- +goose Down\nDROP TABLE credits;\n")
	run(t, folder, nil, "go", "test", "./migrations")

	// 2. The operation
	for _, name := range []string{"credits.go", "credits_test.go", "main_test.go", "wallets.go"} {
		g.write("credits/"+name, read(t, folder, "examples/credits/"+name))
	}
	for _, name := range []string{"credits_test.go", "main_test.go"} {
		g.replace("credits/"+name, `/examples/credits"`, `/credits"`)
	}
	g.replace("credits/main_test.go", "Pool: newPool(t)", "")
	run(t, folder, nil, "go", "test", "./credits")

	// 3. The program
	const config, app = "cmd/internal/app/config.go", "cmd/internal/app/app.go"
	g.after(config, "WebhookSecret Secret `envconfig:\"STRIPE_WEBHOOK_SECRET\"`\n", g.block("WalletsURL    string"))
	g.after(config, "func (c *Config) validate(p *problems) {\n", g.block(`"WALLETS_URL", "is not`))
	g.before("cmd/internal/app/env.txt", "  SMTP_URL\n", g.block("URL of the wallet service."))
	g.before(app, "\ta := &App{Config: config", g.block("a live Stripe key requires WALLETS_URL"))
	g.replace(app, noOwn, g.block("&credits.Service{Pool: pool,"))
	g.replace(app, `/idempotency"`, `/idempotency"`+"\n\t\""+oldPath(t)+`/credits"`)
	run(t, folder, nil, "make", "generate")
	run(t, folder, nil, "go", "build", "./...")
	run(t, folder, nil, "go", "test", "./cmd/internal/app")
	run(t, folder, nil, "go", "test", "-run", "Roles", "./cmd/orders")
	production := []string{"DATABASE_URL=postgres://u:p@127.0.0.1:1/orders", "STRIPE_SECRET_KEY=sk_live_1"}
	_, err := output(t, folder, production, "go", []string{"run", "./cmd/orders", "completer"})
	require.ErrorContains(t, err, "WALLETS_URL")

	// 4. The problem of a refusal
	g.write("api/problems/credit-refused.md", read(t, folder, "examples/credits/credit-refused.md"))
	run(t, folder, nil, "make", "generate")
	run(t, folder, nil, "go", "test", "-run", "Problem", "./api")

	// 5. The contract
	g.addContract("credits")
	g.after("openapi.yaml", "\ntags:\n", g.block("- name: Credits"))
	g.replace("openapi.yaml", "[create_order, ", "[create_order, grant_credit, ")
	g.replace("openapi.yaml", "[started, ", "[started, credit_inserted, credit_refused, ")
	g.write("api/own_test.go", g.block("func TestCredits"))
	run(t, folder, nil, "go", "test", "./api")

	// 6. Everything: here, what depends on the contract
	run(t, folder, nil, "make", "fmt", "generate")
	g.requireOutside("credits/", 8)
	if *everything {
		run(t, folder, nil, "make", "test", "check")
		return
	}
	run(t, folder, nil, "make", "lint", "generated", "contract")
}

// The same for a path below another resource.
func TestGuide_below(t *testing.T) {
	_, folder := clone(t)
	g := guide{t, folder, read(t, root, "docs/add-an-operation.md")}
	g.write("notes/notes.go", read(t, folder, "examples/notes/notes.go"))
	g.write("migrations/20261126104000_notes.sql", "-- +goose Up\n"+read(t, folder, "examples/notes/schema.sql")+"\n-- +goose Down\nDROP TABLE notes;\n")
	const app = "cmd/internal/app/app.go"
	g.replace(app, noOwn, g.block("notes.Routes(pool)"))
	g.replace(app, `/idempotency"`, `/idempotency"`+"\n\t\""+oldPath(t)+`/notes"`)
	g.write("api/problems/note-exists.md", read(t, folder, "examples/notes/note-exists.md"))
	g.before("orders/erase.go", "\t\taudit.WriteTx(ctx, batch, accountID, orderID", g.block("UPDATE notes"))
	g.addContract("notes")
	g.replace("openapi.yaml", "[create_order, ", "[create_order, create_note, ")
	g.write("api/own_test.go", g.block("func TestNotes"))
	run(t, folder, nil, "make", "fmt", "generate", "contract")
	run(t, folder, nil, "go", "test", "./api", "./migrations")
	run(t, folder, nil, "go", "test", "-run", "Roles", "./cmd/orders")
	run(t, folder, nil, "make", "lint")
	g.requireOutside("notes/", 12)
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
	run(t, folder, nil, "go", "test", "./api", "./client", "./cmd/...", "./orders/...")
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

// addContract adds the contract of an example to openapi.yaml.
func (g guide) addContract(example string) {
	g.t.Helper()
	_, contract, found := strings.Cut(read(g.t, g.folder, "examples/"+example+"/openapi.yaml"), "\npaths:\n")
	require.True(g.t, found)
	paths, components, found := strings.Cut(contract, "\n# What the paths refer to")
	require.True(g.t, found)
	_, components, found = strings.Cut(components, "\ncomponents:\n")
	require.True(g.t, found)
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
