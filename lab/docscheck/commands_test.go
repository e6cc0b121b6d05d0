package docscheck_test

import (
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/lab/docscheck"
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
	"go":         notRun("go run and go test of a path: CI builds all of them"),
	"kubectl":    notRun("needs a cluster; TestDocuments_operator has one for the runbook"),
	"npm":        notRun("make -C lab typescript-check packs and installs the client"),
	"node":       notRun("the same check runs the backend of the client's page"),
	"sudo":       notRun("changes the reader's machine; TestDocuments_operator runs the runbook's lines"),
	"sed":        notRun("the same, in a pipeline"),
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
