package docscheck_test

import (
	"context"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/lab/docscheck"
	"example.com/orders-api/lab/labtest"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/payments/stripetest"
)

// runners lists the programs that pages may call, with the check of their arguments.
var runners = map[string]func(t *testing.T, at string, words []string){
	"":           nil, // variables only: TestDocuments
	"export":     nil, // the same
	"orders":     nil, // the same
	"bin/orders": nil, // the same
	"curl":       nil, // the same
	"grep":       nil, // the same, in a pipeline
	"psql":       requirePSQL,
	"make":       requireTarget,
	"docker":     requireCompose,
	"npx":        requireNPMPackage,
	"cd":         notRun("a folder of the reader"),
	"cp":         notRun("changes the reader's folder"),
	"mkdir":      notRun("make -C lab clients-check runs the commands of the guide"),
	"git":        notRun("needs a remote repository"),
	"go":         requireGo,
	"kubectl":    notRun("needs a cluster; TestDocuments_operator has one for the runbook"),
	"npm":        notRun("make -C lab typescript-check packs and installs the client"),
	"node":       notRun("the same check runs the backend of the client's page"),
	"sudo":       notRun("changes the reader's machine; TestDocuments_operator runs the runbook's lines"),
	"sed":        notRun("the same, in a pipeline"),
	"awk":        nil, // TestDocuments_operator, in a pipeline
	"xargs":      nil, // the same
	"perl":       notRun("make -C lab guide-check runs it"),
	"createdb":   notRun("needs the reader's server"),
	"stripe":     notRun("needs an account at Stripe"),
	"systemctl":  notRun("changes the reader's machine"),
}

func notRun(string) func(*testing.T, string, []string) { return nil }

func TestCommands(t *testing.T) {
	t.Parallel()
	s := everything(t)
	for _, page := range allPages(t) {
		for _, block := range page.Blocks {
			commands, err := block.Commands()
			require.NoError(t, err)
			if commands == nil {
				for _, line := range block.Lines {
					want(t, !strings.HasPrefix(line, "$ "), "%s: a command in a block of language %q", block.At(), block.Language)
				}
			}
			for _, command := range commands {
				if isConversion(command) {
					continue // TestDocuments_operator runs it
				}
				for _, part := range command.Parts {
					requireRunner(t, s, command.At, part)
				}
			}
		}
		for _, name := range page.Spans() {
			parts, err := docscheck.Split(name)
			if err != nil || len(parts) == 0 || parts[0].Program() != "make" {
				continue // TestDocuments_mentions checks these commands
			}
			requireTarget(t, page.Path, parts[0].Words)
		}
	}
}

func requireRunner(t *testing.T, s sources, at string, part docscheck.Simple) {
	t.Helper()
	check, known := runners[part.Program()]
	want(t, known, "%s: no test runs %q: add the program to runners, with a check or a reason", at, part.Program())
	if check != nil {
		check(t, at, part.Words)
	}
	for _, word := range part.Words {
		requirePath(t, s, at, word)
	}
}

// requirePSQL rejects the URL of the program, whose parameters psql does not know. TestDocuments_operator runs
// the statements on $PSQL_URL; other calls need the reader's server.
func requirePSQL(t *testing.T, at string, words []string) {
	t.Helper()
	want(t, !slices.Contains(words, "$DATABASE_URL"), "%s: psql rejects parameters of DATABASE_URL; use $PSQL_URL", at)
}

// requireTarget checks that the Makefile has the target and its variables.
// requireGo builds what a page builds, into a folder of the test. CI tests the paths of go run and go test.
func requireGo(t *testing.T, at string, words []string) {
	t.Helper()
	if words[1] != "build" {
		return
	}
	output := slices.Index(words, "-o") + 1
	want(t, output > 0, "%s: without -o, a program may have the name of a folder", at)
	words = slices.Clone(words)
	words[output] = t.TempDir() + "/"
	build := exec.CommandContext(t.Context(), words[0], words[1:]...)
	build.Dir = "../.."
	printed, err := build.CombinedOutput()
	require.NoError(t, err, "%s: %s", at, printed)
}

func requireTarget(t *testing.T, at string, words []string) {
	t.Helper()
	file, words := "Makefile", words[1:]
	if len(words) > 1 && words[0] == "-C" {
		file, words = path.Join(words[1], file), words[2:]
	}
	makefile, err := fs.ReadFile(root, file)
	require.NoError(t, err)
	for _, word := range words {
		name, _, assigned := strings.Cut(word, "=")
		switch {
		case assigned:
			want(t, strings.Contains(string(makefile), "$("+name+")"), "%s: %s has no variable %s", at, file, name)
		default:
			target := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(word) + `:.*##`)
			want(t, target.Match(makefile), "%s: %s has no target %s", at, file, word)
		}
	}
}

// requireNPMPackage checks that make -C lab typescript-check or clients-check runs this version of the package.
func requireNPMPackage(t *testing.T, at string, words []string) {
	t.Helper()
	manifest, err := fs.ReadFile(root, "client/typescript/package.json")
	require.NoError(t, err)
	clients, err := fs.ReadFile(root, "lab/contract/clients-check.sh")
	require.NoError(t, err)
	name, version, _ := strings.Cut(words[1], "@")
	want(t, strings.Contains(string(manifest), strconv.Quote(name)+": "+strconv.Quote(version)) || slices.Contains(strings.Fields(string(clients)), words[1]),
		"%s: neither client/typescript/package.json nor clients-check.sh has the package %s", at, words[1])
}

func requireCompose(t *testing.T, at string, words []string) {
	t.Helper()
	if len(words) < 2 || words[1] != "compose" {
		return // build and run need a Docker engine
	}
	file := "docker-compose.yml"
	for i, word := range words[:len(words)-1] {
		if word == "-f" || word == "--file" {
			file = words[i+1]
		}
	}
	compose, err := fs.ReadFile(root, file)
	require.NoError(t, err, at)
	for i, word := range words[:len(words)-1] {
		if word == "--profile" {
			profile := regexp.MustCompile(`profiles:.*\b` + regexp.QuoteMeta(words[i+1]) + `\b`)
			want(t, profile.Match(compose), "%s: %s has no profile %s", at, file, words[i+1])
		}
	}
}

// operatorsPages are those for an operator at night, in the order in which an operator follows them: an erasure ends the
// keys of an order.
var operatorsPages = []string{"docs/failures.md", "docs/runbook.md", "docs/erase.md"}

// Each command of this program and each curl line must succeed and print the shown
// output. The table runners lists the other programs.
func TestDocuments(t *testing.T) {
	t.Parallel()
	for _, page := range allPages(t) {
		commands := slices.DeleteFunc(commandsOf(t, page), func(c docscheck.Command) bool { return !isOurs(c) })
		if len(commands) == 0 || slices.Contains(operatorsPages, page.Path) {
			continue
		}
		t.Run(page.Path, func(t *testing.T) {
			t.Parallel()
			newReader(t).follow(commands)
		})
	}
}

func isOurs(command docscheck.Command) bool {
	return !slices.ContainsFunc(command.Parts, func(part docscheck.Simple) bool {
		return !slices.Contains([]string{"", "export", "orders", "bin/orders", "curl", "grep", "awk", "xargs"}, part.Program()) && !isStatement(part)
	}) || isConversion(command)
}

func isStatement(part docscheck.Simple) bool {
	return len(part.Words) == 4 && part.Words[0] == "psql" && part.Words[1] == "$PSQL_URL" && part.Words[2] == "-c"
}

// isConversion reports whether a command sets the URL of psql.
func isConversion(command docscheck.Command) bool {
	return strings.HasPrefix(command.Text, "PSQL_URL=")
}

func calls(command docscheck.Command, program string) bool {
	return slices.ContainsFunc(command.Parts, func(part docscheck.Simple) bool { return filepath.Base(part.Program()) == program })
}

// Each line of the operators' pages must succeed with the URL of a plain server and with each form of scaling.md.
func TestDocuments_operator(t *testing.T) {
	t.Parallel()
	lines := map[string][]docscheck.Command{}
	for _, page := range allPages(t) {
		lines[page.Path] = commandsOf(t, page)
	}
	forms := [][]string{{"", "db1:5432", ""}}
	for _, command := range lines["docs/scaling.md"] {
		if form := scalingURL.FindStringSubmatch(command.Text); form != nil {
			forms = append(forms, form)
		}
	}
	var commands []docscheck.Command
	for _, page := range operatorsPages {
		commands = append(commands, lines[page]...)
	}
	require.Greater(t, len(forms), 5, "docs/scaling.md shows its URLs")
	require.Greater(t, len(commands), 30)
	for _, form := range forms {
		t.Run(form[1]+" "+form[2], func(t *testing.T) {
			t.Parallel()
			r := newOperator(t, form[1], form[2])
			r.follow(commands)
			require.Equal(t, 2, r.jobs, "the jobs of lost rows")
		})
	}
}

var scalingURL = regexp.MustCompile(`^export DATABASE_URL='postgres://orders:…@([^/]+)/orders\??(.*)'$`)

type reader struct {
	*labtest.Fixture

	folder     string
	conversion string           // sets PSQL_URL
	api        *programtest.API // started for the first curl line
	jobs       int              // that kubectl has applied
}

// newReader returns a reader with the program on its PATH.
func newReader(t *testing.T) *reader {
	t.Helper()
	return withPath(labtest.NewFixture(t))
}

func withPath(f *labtest.Fixture) *reader {
	f.T.Helper()
	r := &reader{Fixture: f, folder: f.T.TempDir()}
	bin := filepath.Join(r.folder, "bin")
	require.NoError(r.T, os.Mkdir(bin, 0o755))
	require.NoError(r.T, os.Symlink(labtest.Program(), filepath.Join(bin, "orders")))
	deploy, err := filepath.Abs("../../deploy")
	require.NoError(r.T, err)
	for name, script := range map[string]string{"kubectl": kubectl, "sudo": sudo} {
		require.NoError(r.T, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\nset -eu\ncd "+deploy+"\n"+script), 0o755))
	}
	r.Environ = r.With("PATH="+bin+":"+os.Getenv("PATH"), "API_KEY="+r.APIKey, "ADMIN_ADDR=127.0.0.1:0")
	return r
}

// newOperator returns a reader whose DATABASE_URL has these hosts and parameters.
func newOperator(t *testing.T, hosts, parameters string) *reader {
	t.Helper()
	pool := dbtest.New(t)
	own, err := url.Parse(dbtest.URL(pool))
	require.NoError(t, err)
	adapted := *own
	adapted.Host = strings.TrimSuffix(strings.Repeat(own.Host+",", strings.Count(hosts, ",")+1), ",")
	adapted.RawQuery = strings.Trim(own.RawQuery+"&"+parameters, "&")
	if strings.Contains(parameters, "lock_timeout=") {
		role, err := fs.ReadFile(root, "deploy/pgbouncer/role.sql")
		require.NoError(t, err)
		for _, statement := range regexp.MustCompile(`(?m)^ALTER ROLE orders (SET .*);$`).FindAllStringSubmatch(string(role), -1) {
			_, err := pool.Exec(t.Context(), "ALTER DATABASE "+strings.TrimPrefix(own.Path, "/")+" "+statement[1])
			require.NoError(t, err)
		}
	}
	if _, schema, found := strings.Cut(parameters, "search_path="); found {
		_, err := pool.Exec(t.Context(), "CREATE SCHEMA "+schema)
		require.NoError(t, err)
		pool, err = pgxpool.New(t.Context(), adapted.String())
		require.NoError(t, err)
		t.Cleanup(pool.Close)
	}
	f := labtest.NewFixtureOn(t, pool, adapted.String())
	labtest.Run(t, f.Environ, "migrate", "up")
	f.CreateAccount()
	return withPath(f)
}

// The programs of a cluster and of systemd, for the lines of the pages. They require that deploy has what a line
// names. A job is that of the manifest, with the changes of the line, and is run at once.
const (
	kubectl = `for word; do
	case $word in
	*/orders-* | orders-*) grep -q "name: ${word##*/}\b" kubernetes/*.yaml ;;
	esac
done
case "$*" in
*"create job"*) awk '/name: orders-reconcile/,/^---/' kubernetes/cron.yaml ;;
*"apply -f -"*)
	args=$(sed -n 's/^ *args: \[\(.*\)\]$/\1/p' | tr -d ,)
	case $args in *--lost-rows*) ;; *) echo "The job has no --lost-rows: $args" >&2; exit 1 ;; esac
	echo "job of lost rows: $args"
	orders $args
	;;
esac
`
	sudo = `[ "$1 $2" = "systemctl stop" ]
cd systemd
ls $3
`
)

func (r *reader) follow(commands []docscheck.Command) {
	for _, command := range commands {
		parts := command.Parts
		switch {
		case isConversion(command):
			r.conversion = command.Text
		case len(parts) == 1 && (parts[0].Program() == "" || parts[0].Program() == "export"):
			r.set(command)
		case len(parts) == 1 && isLongRunning(parts[0].Words):
			r.startAndStop(parts[0])
		case len(parts) == 1 && isStatement(parts[0]):
			r.runStatement(command)
		default:
			r.runInShell(command)
		}
	}
}

// runStatement runs psql with the URL of the page.
func (r *reader) runStatement(command docscheck.Command) {
	r.T.Helper()
	text := r.conversion + "\n" + strings.ReplaceAll(command.Text, "…", uuid.NewString())
	shell := exec.CommandContext(r.T.Context(), "sh", "-c", text)
	shell.Env = r.Environ
	printed, err := shell.CombinedOutput()
	require.NoError(r.T, err, "%s: %s\n%s\n%s", command.At, programtest.Value(r.Environ, "DATABASE_URL"), text, printed)
}

// set sets the variables of a page. A value with "…" is a placeholder for one that the
// reader already has.
func (r *reader) set(command docscheck.Command) {
	r.T.Helper()
	for _, part := range command.Parts {
		for _, setting := range append(part.Assignments, part.Words[min(1, len(part.Words)):]...) {
			name, text, _ := strings.Cut(setting, "=")
			if !strings.Contains(text, "…") {
				r.Environ = r.With(setting)
				continue
			}
			require.NotEmpty(r.T, programtest.Value(r.Environ, name), "%s: no value for %s", command.At, setting)
		}
	}
}

func isLongRunning(words []string) bool {
	return len(words) > 1 && filepath.Base(words[0]) == "orders" && (words[1] == "serve" || words[1] == "worker" && !slices.Contains(words, "--once") || slices.Contains(words, "--every"))
}

func (r *reader) startAndStop(part docscheck.Simple) {
	r.T.Helper()
	arguments := part.Words[1:]
	p := labtest.Start(r.T, r.With(part.Assignments...), arguments...)
	sign, known := map[string]string{"serve": "listening", "worker": "receipts"}[arguments[0]]
	if !known {
		sign = `msg="` + arguments[0]
	}
	p.WaitFor(&p.Stderr, sign)
	p.Stop()
}

var openVariable = regexp.MustCompile(`\b[A-Z_]+='?[^\s']*…[^\s']*'? `)

// runInShell replaces the addresses of the pages by those of the reader's API, the account ID by the
// reader's, API_KEY_ID by that of the newest API key, PREFIX by that of an API key, JOB by that of a discrepancy, KEY by an
// abandoned key, ORDER by a paid order whose receipt was sent, and EMAIL by the address of its customer.
func (r *reader) runInShell(command docscheck.Command) {
	r.T.Helper()
	for _, part := range command.Parts {
		require.False(r.T, isLongRunning(part.Words), "%s: put a long-running command on a separate line", command.At)
	}
	text := openVariable.ReplaceAllString(command.Text, "")
	if calls(command, "curl") {
		if r.api == nil {
			r.api = labtest.StartDev(r.T, r.Environ)
		}
		text = strings.ReplaceAll(text, "http://localhost:8080", r.api.Base)
		if own := "http://127.0.0.1:8081"; strings.Contains(text, own) {
			admin := r.api.WaitFor(&r.api.Stderr, `serving metrics.*\baddress"?[=:]"?([0-9.]+:[0-9]+)`)[1]
			text = strings.ReplaceAll(text, own, "http://"+admin)
		}
	}
	for placeholder, query := range map[string]string{
		"--account ID": "SELECT '--account ' || id FROM accounts WHERE name = 'Fixture'",
		"API_KEY_ID":   "SELECT id::text FROM api_keys ORDER BY created_at DESC LIMIT 1",
		"PREFIX":       "SELECT prefix FROM api_keys LIMIT 1",
		" JOB":         "INSERT INTO staged_jobs (account_id, id, kind, args, failed_at) SELECT id, id, 'discrepancy', '{}', now() FROM accounts RETURNING ' ' || id",
	} {
		if strings.Contains(text, placeholder) {
			var found string
			require.NoError(r.T, r.Pool.QueryRow(r.T.Context(), query).Scan(&found))
			text = strings.ReplaceAll(text, placeholder, found)
		}
	}
	if key := regexp.MustCompile(`\bKEY\b`); key.MatchString(text) {
		stuck := "stuck-" + strings.ReplaceAll(command.At, ":", "-") + "-0001"
		r.abandon(filepath.Base(stuck))
		text = key.ReplaceAllString(text, filepath.Base(stuck))
	}
	if order := regexp.MustCompile(` ORDER\b`); order.MatchString(text) {
		text = order.ReplaceAllString(text, " "+r.pay())
	}
	if strings.Contains(text, "EMAIL") {
		r.Exec("UPDATE orders SET email = 'grace@example.com' WHERE id = $1", r.pay()) // the address of the stuck orders is another one
		text = strings.ReplaceAll(text, "EMAIL", "grace@example.com")
	}
	ctx, cancel := context.WithTimeout(r.T.Context(), programtest.WaitTimeout)
	defer cancel()
	shell := exec.CommandContext(ctx, "sh", "-c", text)
	shell.Dir, shell.Env, shell.WaitDelay = r.folder, r.Environ, time.Second
	var stderr programtest.Output
	shell.Stderr = &stderr
	printed, err := shell.Output()
	require.NoError(r.T, err, "%s: %s\n%s%s", command.At, text, printed, &stderr)
	r.jobs += strings.Count(string(printed), "job of lost rows:")
	if len(command.Shown) > 0 {
		require.NoError(r.T, docscheck.Compare(command.Shown, string(printed)), command.At)
	}
}

func (r *reader) pay() (order string) {
	r.T.Helper()
	a := r.Serve(r.Environ, "--shutdown-delay", "0")
	order = programtest.RequirePaid(r.T, a.MustOrder("a-paid-order-of-a-page", programtest.Tea))
	a.Stop()
	r.Exec("DELETE FROM staged_jobs")
	return order
}

// abandon creates an order whose confirm the provider rejected, ten minutes ago.
func (r *reader) abandon(idempotencyKey string) {
	r.T.Helper()
	a := r.Serve(r.Environ, "--shutdown-delay", "0")
	rejecting := r.Stripe.Inject(stripetest.Rule{
		Fault: stripetest.Unauthorized, Endpoint: "POST /v1/payment_intents/{id}/confirm", Times: stripetest.Always,
	})
	response, err := a.Order(r.T.Context(), idempotencyKey)
	require.NoError(r.T, err)
	require.Equal(r.T, http.StatusServiceUnavailable, response.Status)
	rejecting.Release()
	a.Stop()
	r.Exec("UPDATE idempotency_keys SET updated_at = updated_at - interval '10 minutes' WHERE recovery_point <> 'finished'")
}
