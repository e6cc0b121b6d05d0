package docscheck_test

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/tools/docscheck"
)

// runners says who runs a program that the pages call. What is not here is
// unknown, and a page that calls it fails. Of those that nobody runs, paths into
// the repository are looked up all the same, as of every other one.
var runners = map[string]func(t *testing.T, at string, words []string){
	"":           nil, // variables alone: cmd/orders, TestDocuments
	"export":     nil, // the same
	"orders":     nil, // the same
	"bin/orders": nil, // the same
	"curl":       nil, // the same
	"grep":       nil, // the same, behind one of these
	"psql":       nil, // the same, when it is given a statement for "$DATABASE_URL"; else it names the reader's own server
	"make":       requireTarget,
	"docker":     requireCompose,
	"chmod":      nobody("make rename-check does it to the copies"),
	"gonew":      nobody("make rename-check runs it, on a proxy made of files"),
	"cd":         nobody("a place of the reader's choice"),
	"cp":         nobody("changes the reader's folder"),
	"git":        nobody("needs a remote repository"),
	"go":         nobody("go run and go test of a path: CI builds all of them"),
	"kubectl":    nobody("needs a cluster"),
	"sudo":       nobody("changes the reader's machine"),
	"createdb":   nobody("names the reader's own server"),
	"stripe":     nobody("needs an account at Stripe"),
	"systemctl":  nobody("changes the reader's machine"),
}

func nobody(string) func(*testing.T, string, []string) { return nil }

func TestCommands_haveSomebodyWhoRunsThem(t *testing.T) {
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
				for _, part := range command.Parts {
					requireRunner(t, s, command.At, part)
				}
			}
		}
		for _, name := range page.Spans() {
			parts, err := docscheck.Split(name)
			if err != nil || len(parts) == 0 || parts[0].Program() != "make" {
				continue // what looks like a command of ours: cmd/orders, TestDocuments_mentions
			}
			requireTarget(t, page.Path, parts[0].Words)
		}
	}
}

func requireRunner(t *testing.T, s sources, at string, part docscheck.Simple) {
	t.Helper()
	check, known := runners[part.Program()]
	want(t, known, "%s: nobody runs %q: run it in a test, or say in runners why not", at, part.Program())
	if check != nil {
		check(t, at, part.Words)
	}
	for _, word := range part.Words {
		requirePath(t, s, at, word)
	}
}

// requireTarget wants a target of the Makefile, and its variables.
func requireTarget(t *testing.T, at string, words []string) {
	t.Helper()
	makefile, err := fs.ReadFile(root, "Makefile")
	require.NoError(t, err)
	for _, word := range words[1:] {
		name, _, assigned := strings.Cut(word, "=")
		switch {
		case assigned:
			want(t, strings.Contains(string(makefile), "$("+name+")"), "%s: make knows no %s", at, name)
		default:
			target := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(word) + `:.*##`)
			want(t, target.Match(makefile), "%s: there is no make %s", at, word)
		}
	}
}

// requireCompose wants the profiles and files that docker compose is given.
func requireCompose(t *testing.T, at string, words []string) {
	t.Helper()
	if len(words) < 2 || words[1] != "compose" {
		return // build and run need an engine
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
