package main_test

import (
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	orders "example.com/orders-api/cmd/orders"
	"example.com/orders-api/internal/docscheck"
)

// documents returns the pages of the repository, see internal/docscheck.
func documents(t *testing.T) []docscheck.Page {
	t.Helper()
	pages, err := docscheck.Pages(os.DirFS("../.."))
	require.NoError(t, err)
	return pages
}

func commandsOf(t *testing.T, page docscheck.Page) []docscheck.Command {
	t.Helper()
	commands, err := page.Commands()
	require.NoError(t, err)
	return commands
}

// Runs every command of this program and every curl line of the pages, in order. Each
// must succeed and print what the page shows. internal/docscheck checks the others.
func TestDocuments(t *testing.T) {
	t.Parallel()
	for _, page := range documents(t) {
		commands := slices.DeleteFunc(commandsOf(t, page), func(c docscheck.Command) bool { return !isOurs(c) })
		if len(commands) == 0 {
			continue
		}
		t.Run(page.Path, func(t *testing.T) {
			t.Parallel()
			newReader(t, "own curl").follow(commands)
		})
		if _, err := exec.LookPath("curl"); err == nil && slices.ContainsFunc(commands, isCurl) {
			t.Run(page.Path+" with the real curl", func(t *testing.T) {
				t.Parallel()
				newReader(t, "").follow(slices.DeleteFunc(slices.Clone(commands), func(c docscheck.Command) bool { return !isCurl(c) && !isAssignment(c) }))
			})
		}
	}
}

// isOurs reports whether this test can run all parts of a command.
func isOurs(command docscheck.Command) bool {
	return !slices.ContainsFunc(command.Parts, func(part docscheck.Simple) bool {
		return !slices.Contains([]string{"", "export", "orders", "bin/orders", "curl", "grep"}, part.Program()) && !isStatement(part)
	})
}

// isStatement reports whether a command is psql with a statement.
func isStatement(part docscheck.Simple) bool {
	return len(part.Words) == 4 && part.Words[0] == "psql" && part.Words[1] == "$DATABASE_URL" && part.Words[2] == "-c"
}

func isCurl(command docscheck.Command) bool { return calls(command, "curl") }

// isAssignment reports whether a command only sets variables of the shell.
func isAssignment(command docscheck.Command) bool {
	return len(command.Parts) == 1 && command.Parts[0].Program() == ""
}

func calls(command docscheck.Command, program string) bool {
	return slices.ContainsFunc(command.Parts, func(part docscheck.Simple) bool { return filepath.Base(part.Program()) == program })
}

// reader runs the commands of one page on a fixture.
type reader struct {
	*fixture
	folder string // the working directory
	api    *api   // started for the first curl line
}

// newReader returns a reader with the program on its PATH, and with our own curl
// unless curl is "".
func newReader(t *testing.T, curl string) *reader {
	t.Helper()
	r := &reader{fixture: newFixture(t), folder: t.TempDir()}
	program, err := os.Executable()
	require.NoError(t, err)
	bin := filepath.Join(r.folder, "bin")
	require.NoError(t, os.Mkdir(bin, 0o755))
	require.NoError(t, os.Symlink(program, filepath.Join(bin, "orders")))
	if curl != "" {
		require.NoError(t, os.Symlink(program, filepath.Join(bin, "curl")))
	}
	r.environ = r.with("PATH="+bin+":"+os.Getenv("PATH"), beProgram+"=1", "API_KEY="+r.apiKey, "ADMIN_ADDR=127.0.0.1:0")
	return r
}

func (r *reader) follow(commands []docscheck.Command) {
	for _, command := range commands {
		parts := command.Parts
		switch {
		case len(parts) == 1 && (parts[0].Program() == "" || parts[0].Program() == "export"):
			r.set(command)
		case len(parts) == 1 && isLongRunning(parts[0].Words):
			r.startAndStop(parts[0])
		case len(parts) == 1 && isStatement(parts[0]):
			r.exec(strings.ReplaceAll(parts[0].Words[3], "…", uuid.NewString()))
		default:
			r.runInShell(command)
		}
	}
}

// set sets the variables that a page sets. A value with "…" is a placeholder, for which
// the reader must have a value already.
func (r *reader) set(command docscheck.Command) {
	r.t.Helper()
	for _, part := range command.Parts {
		for _, setting := range append(part.Assignments, part.Words[min(1, len(part.Words)):]...) {
			name, text, _ := strings.Cut(setting, "=")
			if !strings.Contains(text, "…") {
				r.environ = r.with(setting)
				continue
			}
			require.NotEmpty(r.t, value(r.environ, name), "%s: no value for %s", command.At, setting)
		}
	}
}

// isLongRunning reports whether a command runs until it is stopped.
func isLongRunning(words []string) bool {
	return len(words) > 1 && filepath.Base(words[0]) == "orders" && (slices.Contains([]string{"serve", "dev"}, words[1]) ||
		words[1] == "worker" && !slices.Contains(words, "--once") || slices.Contains(words, "--every"))
}

// startAndStop starts a long-running command, waits until it is ready and stops it.
func (r *reader) startAndStop(part docscheck.Simple) {
	r.t.Helper()
	arguments := part.Words[1:]
	p := start(r.t, r.with(part.Assignments...), arguments...)
	sign, known := map[string]string{"serve": "listening", "dev": "listening", "worker": "receipts"}[arguments[0]]
	if !known {
		sign = "pass"
	}
	p.waitFor(&p.stderr, sign)
	p.stop()
}

var openVariable = regexp.MustCompile(`\b[A-Z_]+='?[^\s']*…[^\s']*'? `)

// runInShell runs a command in a shell. It replaces the addresses of the pages by those
// of the reader's API, and KEY by an abandoned key.
func (r *reader) runInShell(command docscheck.Command) {
	r.t.Helper()
	for _, part := range command.Parts {
		require.False(r.t, isLongRunning(part.Words), "%s: a long-running command needs a line of its own", command.At)
	}
	text := openVariable.ReplaceAllString(command.Text, "")
	if calls(command, "curl") {
		if r.api == nil {
			r.api, _ = startDev(r.t, r.environ)
		}
		text = strings.ReplaceAll(text, "http://localhost:8080", r.api.base)
		if own := "http://127.0.0.1:8081"; strings.Contains(text, own) {
			admin := r.api.waitFor(&r.api.stderr, `serving metrics.*\baddress"?[=:]"?([0-9.]+:[0-9]+)`)[1]
			text = strings.ReplaceAll(text, own, "http://"+admin)
		}
	}
	if key := regexp.MustCompile(`\bKEY\b`); key.MatchString(text) {
		stuck := "stuck-" + strings.ReplaceAll(command.At, ":", "-") + "-0001"
		r.abandon(filepath.Base(stuck))
		text = key.ReplaceAllString(text, filepath.Base(stuck))
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), waitTimeout)
	defer cancel()
	shell := exec.CommandContext(ctx, "sh", "-c", text)
	shell.Dir, shell.Env, shell.WaitDelay = r.folder, r.environ, time.Second
	var stderr output
	shell.Stderr = &stderr
	printed, err := shell.Output()
	require.NoError(r.t, err, "%s: %s\n%s%s", command.At, text, printed, &stderr)
	if len(command.Shown) > 0 {
		require.NoError(r.t, docscheck.Compare(command.Shown, string(printed)), command.At)
	}
}

// Checks the commands and flags in prose, crontabs and manifests, and the shown output
// of make demo.
func TestDocuments_mentions(t *testing.T) {
	t.Parallel()
	crontab := regexp.MustCompile(`/orders ([^;\n]+)$`)
	manifest := regexp.MustCompile(`^\s*args: \[([\w, ".-]+)\]`)
	for _, page := range documents(t) {
		for _, name := range page.Spans() {
			parts, err := docscheck.Split(name)
			if err != nil {
				continue // no command
			}
			for _, part := range parts {
				if filepath.Base(part.Program()) == "orders" && len(part.Words) > 1 && !strings.Contains(name, "/orders/") {
					requireCommand(t, page.Path, part.Words[1:])
				}
			}
		}
		for _, block := range page.Blocks {
			for _, line := range block.Lines {
				if match := crontab.FindStringSubmatch(line); match != nil && block.Language == "crontab" {
					requireCommand(t, block.At(), strings.Fields(match[1]))
				}
				if match := manifest.FindStringSubmatch(line); match != nil && block.Language == "yaml" {
					requireCommand(t, block.At(), strings.Split(strings.ReplaceAll(match[1], `"`, ""), ", "))
				}
			}
		}
		for _, command := range commandsOf(t, page) {
			if strings.HasSuffix(command.Text, "make demo") && len(command.Shown) > 0 {
				requireClaims(t, strings.Join(command.Shown, "\n")+"\n", "✓", "✓", "✓", "✓", "✓", "✓", "✓", "✓", "✓", "✓")
			}
		}
	}
}

// requireCommand checks that a command with these flags exists, by its help. -h is
// given twice, because the first one is the value of a flag without one.
func requireCommand(t *testing.T, at string, words []string) {
	t.Helper()
	err := orders.Run(t.Context(), append(slices.Clone(words), "-h", "-h"), io.Discard, io.Discard)
	if err != nil && !errors.Is(err, flag.ErrHelp) && !strings.Contains(err.Error(), `invalid value "-h" for flag`) {
		t.Errorf("%s: orders %s: %v", at, strings.Join(words, " "), err)
	}
}

// requireShown checks that a page shows this output below a command.
func requireShown(t *testing.T, page, command, output string) {
	t.Helper()
	for _, p := range documents(t) {
		for _, c := range commandsOf(t, p) {
			if p.Path == page && c.Text == command {
				require.NoError(t, docscheck.Compare(c.Shown, output))
				return
			}
		}
	}
	require.Fail(t, "the page shows no such command", "%s in %s", command, page)
}

// Links to the API must work.
func TestDocuments_addresses(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a, _ := startDev(t, f.environ)
	for _, page := range documents(t) {
		for _, link := range page.Links() {
			path, ours := strings.CutPrefix(link, "http://localhost:8080")
			if !ours {
				continue
			}
			got, err := a.do(context.Background(), http.MethodGet, path, "", nil)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, got.status, "%s: %s", page.Path, link)
		}
	}
	a.stop()
}
