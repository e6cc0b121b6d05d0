package docscheck_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/lab/docscheck"
	"example.com/orders-api/lab/labtest"
)

func TestMain(m *testing.M) { os.Exit(labtest.Main{M: m}.Run()) }

func TestDocuments_mentions(t *testing.T) {
	t.Parallel()
	crontab := regexp.MustCompile(`/orders ([^;\n]+)$`)
	manifest := regexp.MustCompile(`^\s*args: \[([\w, ".-]+)\]`)
	for _, page := range allPages(t) {
		for _, name := range page.Spans() {
			parts, err := docscheck.Split(name)
			if err != nil {
				continue // no command
			}
			for _, part := range parts {
				switch program := filepath.Base(part.Program()); {
				case len(part.Words) < 2:
				case program == "playground":
					requireCommand(t, page.Path, labtest.Playground(), part.Words[1:])
				case program == "orders" && !strings.Contains(name, "/orders/"):
					requireCommand(t, page.Path, labtest.Program(), part.Words[1:])
				}
			}
		}
		for _, block := range page.Blocks {
			for _, line := range block.Lines {
				if match := crontab.FindStringSubmatch(line); match != nil && block.Language == "crontab" {
					requireCommand(t, block.At(), labtest.Program(), strings.Fields(match[1]))
				}
				if match := manifest.FindStringSubmatch(line); match != nil && block.Language == "yaml" {
					requireCommand(t, block.At(), labtest.Program(), strings.Split(strings.ReplaceAll(match[1], `"`, ""), ", "))
				}
			}
		}
	}
}

// requireCommand checks a command with its help. A page may omit the value of its last flag.
func requireCommand(t *testing.T, at, program string, words []string) {
	t.Helper()
	p := programtest.StartProgram(t, program, nil, append(slices.Clone(words), "-h")...)
	if p.Wait() != 0 && !strings.Contains(p.Stderr.String(), `value but got "-h"`) {
		t.Errorf("%s: orders %s: %s", at, strings.Join(words, " "), &p.Stderr)
	}
}

func TestDocuments_run(t *testing.T) {
	t.Parallel()
	a := labtest.StartDev(t, programtest.Environ(t))
	a.Stop()
	require.NoError(t, docscheck.Compare(shownBelow(t, "docs/first-order.md", "make run"), a.Stdout.String()))
}

// README shows some lines of make demo, whose figures differ between runs.
func TestDocuments_demo(t *testing.T) {
	t.Parallel()
	result := regexp.MustCompile(`(?m)^ [✓✗–] .+?(?:  | \d{3} )`)
	demo := programtest.StartProgram(t, labtest.Playground(), programtest.Environ(t), "demo")
	require.Zero(t, demo.Wait(), "%s", &demo.Stderr)
	shown := result.FindAllString(strings.Join(shownBelow(t, "README.md", "make demo"), "\n"), -1)
	require.NotEmpty(t, shown)
	require.Subset(t, result.FindAllString(demo.Stdout.String(), -1), shown)
}

// What a shop reads after make own is bounded, in words outside of code blocks. How an order works and the rules are
// what a change of a step needs, and have a bound of their own. README has one below.
func TestDocuments_words(t *testing.T) {
	t.Parallel()
	own, err := fs.ReadFile(root, "lab/own.sh")
	require.NoError(t, err)
	list := regexp.MustCompile(`(?s)\ngone=\((.*?)\)\n`).FindSubmatch(own)
	require.NotNil(t, list)
	gone := append(strings.Fields(string(list[1])), "README.md", "CHANGELOG.md", "docs/console.md", "api/problems", "examples")
	words := map[string]int{}
	for _, page := range allPages(t) {
		if slices.ContainsFunc(gone, func(name string) bool { return strings.HasPrefix(page.Path+"/", name+"/") }) {
			continue
		}
		kind := "pages"
		switch folder, _, _ := strings.Cut(page.Path, "/"); {
		case page.Path == "docs/how-it-works.md", page.Path == "docs/rules.md":
			kind = "protocol"
		case folder != "docs" && folder != "client":
			kind = "repository" // how to contribute, to report, to ask
		}
		for _, word := range strings.Fields(page.Prose) {
			if strings.ContainsFunc(word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }) {
				words[kind]++
			}
		}
	}
	t.Log(words)
	require.LessOrEqual(t, words["pages"], 10_000)
	require.LessOrEqual(t, words["protocol"], 5_600)
	require.LessOrEqual(t, words["repository"], 1_200)
}

// README names the two commands of a new clone, in at most 800 words.
func TestDocuments_readme(t *testing.T) {
	t.Parallel()
	text, err := fs.ReadFile(root, "README.md")
	require.NoError(t, err)
	require.LessOrEqual(t, len(strings.Fields(string(text))), 800)
	for _, command := range []string{"make demo", "make test"} {
		shownBelow(t, "README.md", command)
	}
}

func shownBelow(t *testing.T, path, command string) []string {
	t.Helper()
	for _, page := range allPages(t) {
		for _, c := range commandsOf(t, page) {
			if page.Path == path && c.Text == command {
				return c.Shown
			}
		}
	}
	require.Fail(t, "the page does not show the output", "%s: %s", path, command)
	return nil
}

func TestDocuments_addresses(t *testing.T) {
	t.Parallel()
	f := labtest.NewFixture(t)
	a := labtest.StartDev(t, f.Environ)
	for _, page := range allPages(t) {
		for _, link := range page.Links() {
			path, ours := strings.CutPrefix(link, "http://localhost:8080")
			if !ours {
				continue
			}
			got, err := a.Do(t.Context(), http.MethodGet, path, "", nil)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, got.Status, "%s: %s", page.Path, link)
		}
	}
	a.Stop()
}

// A stop of the tour whose function was renamed or moved would lead a reader nowhere.
func TestCodeTour(t *testing.T) {
	t.Parallel()
	const tour = "docs/code-tour.md"
	page, err := fs.ReadFile(root, tour)
	require.NoError(t, err)
	stops := codeLink.FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, stops)
	for _, stop := range stops {
		_, err := declarationOf(root, path.Join(path.Dir(tour), stop[2]), stop[1])
		require.NoError(t, err, "%s: %s", tour, stop[1])
	}
}

// docs/libraries.md gives the reason for each library that go.mod requires directly.
func TestLibraries(t *testing.T) {
	t.Parallel()
	page, err := fs.ReadFile(root, "docs/libraries.md")
	require.NoError(t, err)
	text, err := fs.ReadFile(root, "go.mod")
	require.NoError(t, err)
	file, err := modfile.Parse("go.mod", text, nil)
	require.NoError(t, err)
	for _, required := range file.Require {
		prefix, _, _ := module.SplitPathVersion(required.Mod.Path)
		want(t, required.Indirect || regexp.MustCompile(`[\[/]`+regexp.QuoteMeta(path.Base(prefix))+`[] /)]`).Match(page),
			"docs/libraries.md omits %s", required.Mod.Path)
	}
}

// GitHub draws the diagrams of pages. In Mermaid, a semicolon ends a statement, also within a note.
func TestDiagrams_semicolon(t *testing.T) {
	t.Parallel()
	for _, page := range allPages(t) {
		for _, block := range page.Blocks {
			want(t, block.Language != "mermaid" || !strings.Contains(strings.Join(block.Lines, ""), ";"), "%s: GitHub cannot draw it", block.At())
		}
	}
}

// Chromium's fonts differ between machines, so the pictures are not drawn again here.
func TestDiagrams_drawnFromTheirText(t *testing.T) {
	t.Parallel()
	texts, err := filepath.Glob("../../docs/diagrams/*.mmd")
	require.NoError(t, err)
	require.NotEmpty(t, texts)
	for _, path := range texts {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		picture, err := os.ReadFile(strings.TrimSuffix(path, ".mmd") + ".svg")
		require.NoError(t, err)
		sum := sha256.Sum256(text)
		require.Contains(t, string(picture), hex.EncodeToString(sum[:]), "%s has changed: run make -C lab diagrams", path)
	}
}
